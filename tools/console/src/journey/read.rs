//! The queries of a journey. Events and inbox rows are found by their keys, which name their partitions.

use sqlx::{Connection, PgConnection, PgPool, Row, postgres::PgRow};
use uuid::Uuid;

use contracts::order_fulfillment::SAGA;

use super::{
    DeadLetter, Entry, Hit, Journey, Left, Line, Order, Publication, Reader, Saga, States, left, states, step_of,
};

/// The journey of an order; `None` when there is no such order.
///
/// # Errors
/// When the database cannot be read.
pub async fn read(connection: &mut PgConnection, order_id: Uuid) -> sqlx::Result<Option<Journey>> {
    let mut snapshot = connection.begin_with("begin isolation level repeatable read read only").await?;
    let Some(order) = order(&mut snapshot, order_id).await? else { return Ok(None) };
    let saga = saga(&mut snapshot, order.saga_id).await?;
    let mut entries = journal(&mut snapshot, &order).await?;
    let events: Vec<Uuid> = entries.iter().filter_map(|entry| entry.event_id).collect();
    for publication in publications(&mut snapshot, &events).await? {
        let of = entries.iter_mut().find(|entry| entry.event_id == Some(publication.event_id));
        if let Some(entry) = of {
            entry.publication = Some(publication);
        }
    }
    for reader in readers(&mut snapshot, &events).await? {
        let of = entries.iter_mut().find(|entry| entry.event_id == Some(reader.event_id));
        if let Some(entry) = of {
            entry.readers.push(reader);
        }
    }
    let dead_letters = dead_letters(&mut snapshot, &events).await?;
    let mut left = left(saga.as_ref().map(|saga| saga.status.as_str()), &entries, &dead_letters);
    add_attempts(&mut snapshot, &mut left, &events).await?;
    let journey = Journey {
        lines: lines(&mut snapshot, order_id).await?,
        dead_letters,
        hits: hits(&mut snapshot, order.saga_id).await?,
        order,
        saga,
        entries,
        left,
    };
    snapshot.commit().await?;
    Ok(Some(journey))
}

/// The same with a connection of a pool.
pub(crate) async fn find(pool: &PgPool, order_id: Uuid) -> sqlx::Result<Option<Journey>> {
    read(&mut *pool.acquire().await?, order_id).await
}

async fn order(connection: &mut PgConnection, order_id: Uuid) -> sqlx::Result<Option<Order>> {
    let query = sqlx::query_as(
        "select o.order_id, o.customer_id, o.status, o.total_amount, o.currency, o.saga_id, o.cancel_reason, o.created_at,
            r.status as stock_status, p.status as payment_status, p.decline_code
        from orders.customer_order o
        left join inventory.reservation r using (order_id)
        left join payment.payment p using (order_id)
        where o.order_id = $1",
    );
    query.bind(order_id).fetch_optional(connection).await
}

async fn lines(connection: &mut PgConnection, order_id: Uuid) -> sqlx::Result<Vec<Line>> {
    let query = sqlx::query_as(
        "select sku, quantity::bigint as quantity, unit_price from orders.order_line where order_id = $1 order by line",
    );
    query.bind(order_id).fetch_all(connection).await
}

async fn saga(connection: &mut PgConnection, saga_id: Uuid) -> sqlx::Result<Option<Saga>> {
    let query = sqlx::query_as(
        "select status, correlation_id, trace_id, started_at, deadline, compensation_deadline, compensation_attempts,
            completed_at, failure_reason, receipts_due
        from saga.saga_instance
        where saga_id = $1",
    );
    query.bind(saga_id).fetch_optional(connection).await
}

async fn journal(connection: &mut PgConnection, order: &Order) -> sqlx::Result<Vec<Entry>> {
    let query = sqlx::query(
        "select position, step, service, direction, status, event_type, event_id, occurred_at, reason, fault, status_after
        from saga.saga_step
        where saga_id = $1
        order by position",
    );
    let rows = query.bind(order.saga_id).fetch_all(connection).await?;
    let mut states = States::default();
    rows.iter().map(|row| entry(row, order, &mut states)).collect()
}

/// The entry of a row; `states` are those before it, and become those after it.
fn entry(row: &PgRow, order: &Order, states: &mut States) -> sqlx::Result<Entry> {
    let (step, status, event_type): (String, String, String) =
        (row.try_get("step")?, row.try_get("status")?, row.try_get("event_type")?);
    let fact = states::fact(&event_type, &step, &status);
    *states = states.after(&fact, &row.try_get::<String, _>("status_after")?, status == "SKIPPED");
    // A capture that was too late to be an event is refunded all the same; its receipt does not tell it from one of nothing.
    if states.payment == Some("VOIDED") && order.payment_status.as_deref() == Some("REFUNDED") {
        states.payment = Some("REFUNDED");
    }
    let undone_by = match step_of(&step).map(|step| step.kind) {
        Some(saga::Kind::Compensatable { by }) => by,
        _ => &[],
    };
    Ok(Entry {
        position: row.try_get("position")?,
        service: row.try_get("service")?,
        direction: row.try_get("direction")?,
        event_id: row.try_get("event_id")?,
        occurred_at: row.try_get("occurred_at")?,
        reason: row.try_get("reason")?,
        fault: row.try_get("fault")?,
        undone_by,
        publication: None,
        readers: Vec::new(),
        after: states.clone(),
        step,
        status,
        event_type,
    })
}

async fn publications(connection: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<Vec<Publication>> {
    let query = sqlx::query_as(
        "select event_id, state, created_at, null::timestamptz as published_at, attempts, last_error, republication
        from audit.outbox
        where event_id = any($1)
        union all
        select event_id, 'PUBLISHED', created_at, published_at, 0, null, republication
        from audit.outbox_published
        where event_id = any($1)",
    );
    query.bind(events).fetch_all(connection).await
}

async fn readers(connection: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<Vec<Reader>> {
    let query = sqlx::query_as(
        "select event_id, consumer, processed_at, duplicates
        from audit.inbox
        where event_id = any($1)
        order by processed_at",
    );
    query.bind(events).fetch_all(connection).await
}

async fn add_attempts(connection: &mut PgConnection, left: &mut [Left], events: &[Uuid]) -> sqlx::Result<()> {
    let consumers = consumers();
    let query = sqlx::query_as::<_, (String, i32, String)>(
        "select consumer, attempts, last_error
        from audit.delivery_attempt
        where consumer = any($1) and event_id = any($2)
        order by updated_at",
    );
    for (consumer, attempts, error) in query.bind(&consumers).bind(events).fetch_all(connection).await? {
        let is_of = |left: &&mut Left| step_of(left.step).is_some_and(|step| step.consumer() == consumer);
        if let Some(left) = left.iter_mut().find(is_of) {
            (left.attempts, left.last_error) = (attempts, Some(error));
        }
    }
    Ok(())
}

async fn dead_letters(connection: &mut PgConnection, events: &[Uuid]) -> sqlx::Result<Vec<DeadLetter>> {
    let query = sqlx::query_as(
        "select event_id, service, dead_letter_id, step, event_type, reason, status, attempts
        from audit.dead_letter
        where consumer = any($1) and event_id = any($2)
        order by created_at",
    );
    query.bind(consumers()).bind(events).fetch_all(connection).await
}

async fn hits(connection: &mut PgConnection, saga_id: Uuid) -> sqlx::Result<Vec<Hit>> {
    let query = sqlx::query_as(
        "select service, step, point, kind, hit_at from saga.fault_hit where saga_id = $1 order by hit_id",
    );
    query.bind(saga_id).fetch_all(connection).await
}

/// The consumers of the saga's steps: the keys of dead letters and attempts begin with them.
fn consumers() -> Vec<String> {
    SAGA.steps.iter().map(|step| step.consumer()).collect()
}
