//! Every SQL statement of the payment service. Statements that write several payments lock them in the
//! order of their order ids.

mod row;
mod sample;

use std::collections::HashMap;

use contracts::{Money, OrderId, PaymentId};
use messaging::StepError;
use sqlx::PgConnection;
use uuid::Uuid;

pub(crate) use sample::{SAMPLED as GAUGES, read as read_gauges};

pub(crate) use row::{PaymentRow, Payments, StoredPayment};

use crate::domain::Status;

/// A payment to be inserted.
#[derive(Clone)]
pub(crate) struct NewPayment {
    pub(crate) order_id: OrderId,
    pub(crate) saga_id: Uuid,
    pub(crate) amount: Money,
    pub(crate) method: String,
}

impl NewPayment {
    pub(crate) fn new(order_id: OrderId, saga_id: Uuid, amount: Money, method: &str) -> Self {
        NewPayment { order_id, saga_id, amount, method: method.to_owned() }
    }
}

fn by_order(rows: Vec<PaymentRow>) -> Result<Payments, StepError> {
    rows.into_iter().map(|row| Ok((OrderId(row.order_id), row.read()?))).collect()
}

/// The sagas' statuses, read without locks, so they may be outdated.
pub(crate) async fn saga_statuses(
    conn: &mut PgConnection,
    saga_ids: &[Uuid],
) -> Result<HashMap<Uuid, saga::Status>, StepError> {
    let rows = sqlx::query!(
        "select saga_id, status
        from saga.saga_instance
        where saga_id = any($1)",
        saga_ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((row.saga_id, row.status.parse().map_err(StepError::failed)?))).collect()
}

/// Inserts the intents, PENDING, of the orders that have no payment yet. Concurrent inserts of the same payment may conflict on
/// either of its keys, so `on conflict` names none.
pub(crate) async fn insert_intents(conn: &mut PgConnection, intents: &[NewPayment]) -> Result<(), sqlx::Error> {
    if intents.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into payment (payment_id, order_id, saga_id, amount, currency, method, status)
        select payment_id, order_id, saga_id, amount, currency, method, 'PENDING'
        from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[])
            as t (payment_id, order_id, saga_id, amount, currency, method)
        order by order_id
        on conflict do nothing",
        &intents.iter().map(|p| PaymentId::of(p.order_id).0).collect::<Vec<_>>(),
        &intents.iter().map(|p| p.order_id.0).collect::<Vec<_>>(),
        &intents.iter().map(|p| p.saga_id).collect::<Vec<_>>(),
        &intents.iter().map(|p| p.amount.amount).collect::<Vec<_>>(),
        &intents.iter().map(|p| p.amount.currency.to_string()).collect::<Vec<_>>(),
        &intents.iter().map(|p| p.method.clone()).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the cancellation of the orders: from now on they must not be charged. An order without a
/// payment gets a tombstone.
pub(crate) async fn cancel_payments(conn: &mut PgConnection, tombstones: &[NewPayment]) -> Result<Payments, StepError> {
    if tombstones.is_empty() {
        return Ok(Payments::new());
    }
    let order_ids: Vec<Uuid> = tombstones.iter().map(|p| p.order_id.0).collect();
    sqlx::query!(
        "insert into payment
            (payment_id, order_id, saga_id, amount, currency, method, status, cancelled_at, created_at)
        select distinct on (order_id) payment_id, order_id, saga_id, amount, currency, method, 'VOIDED', now(), now()
        from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[])
            as t (payment_id, order_id, saga_id, amount, currency, method)
        order by order_id
        on conflict do nothing",
        &tombstones.iter().map(|p| PaymentId::of(p.order_id).0).collect::<Vec<_>>(),
        &order_ids,
        &tombstones.iter().map(|p| p.saga_id).collect::<Vec<_>>(),
        &tombstones.iter().map(|p| p.amount.amount).collect::<Vec<_>>(),
        &tombstones.iter().map(|p| p.amount.currency.to_string()).collect::<Vec<_>>(),
        &tombstones.iter().map(|p| p.method.clone()).collect::<Vec<_>>(),
    )
    .execute(&mut *conn)
    .await?;
    let rows = sqlx::query_as!(
        PaymentRow,
        "with locked as materialized (
            select order_id from payment where order_id = any($1) order by order_id for update
        )
        update payment p
        set cancelled_at = coalesce(p.cancelled_at, now()),
            updated_at = case when p.cancelled_at is null then now() else p.updated_at end
        from locked
        where p.order_id = locked.order_id
        returning p.payment_id, p.order_id, p.saga_id, p.amount, p.currency, p.method, p.status, p.gateway_reference,
            p.decline_code, p.cancelled_at, p.captured_at, p.refunded_at, p.version, p.created_at, p.updated_at",
        &order_ids,
    )
    .fetch_all(conn)
    .await?;
    by_order(rows)
}

/// The orders' payments, without locks.
pub(crate) async fn payments_of(conn: &mut PgConnection, orders: &[OrderId]) -> Result<Payments, StepError> {
    by_order(rows_of(conn, orders).await?)
}

async fn rows_of(conn: &mut PgConnection, orders: &[OrderId]) -> Result<Vec<PaymentRow>, sqlx::Error> {
    sqlx::query_as!(
        PaymentRow,
        "select payment_id, order_id, saga_id, amount, currency, method, status, gateway_reference, decline_code,
            cancelled_at, captured_at, refunded_at, version, created_at, updated_at
        from payment
        where order_id = any($1)",
        &uuids(orders),
    )
    .fetch_all(conn)
    .await
}

/// Locks the orders' payments.
pub(crate) async fn lock_payments(conn: &mut PgConnection, orders: &[OrderId]) -> Result<Payments, StepError> {
    let rows = sqlx::query_as!(
        PaymentRow,
        "select payment_id, order_id, saga_id, amount, currency, method, status, gateway_reference, decline_code,
            cancelled_at, captured_at, refunded_at, version, created_at, updated_at
        from payment
        where order_id = any($1)
        order by order_id
        for update",
        &uuids(orders),
    )
    .fetch_all(conn)
    .await?;
    by_order(rows)
}

/// Writes status and version of the locked payments that have changed.
pub(crate) async fn save_payments(conn: &mut PgConnection, payments: &Payments) -> Result<(), StepError> {
    let changed: Vec<&StoredPayment> = payments.values().filter(|payment| payment.changed).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let details = |p: &&StoredPayment| match &p.payment.status {
        Status::Captured(reference) | Status::Refunded(reference) => (Some(reference.0.clone()), None),
        Status::Declined(code) => (None, Some(code.0.clone())),
        Status::Pending | Status::Voided { .. } => (None, None),
    };
    let (references, codes): (Vec<_>, Vec<_>) = changed.iter().map(details).unzip();
    let written = sqlx::query!(
        "update payment p
        set status = t.status, version = t.version, updated_at = now(),
            gateway_reference = coalesce(p.gateway_reference, t.gateway_reference),
            decline_code = coalesce(p.decline_code, t.decline_code),
            captured_at = case when t.status = 'CAPTURED' then coalesce(p.captured_at, now()) else p.captured_at end,
            refunded_at = case when t.status = 'REFUNDED' then coalesce(p.refunded_at, now()) end
        from unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[])
            as t (payment_id, status, version, gateway_reference, decline_code)
        where p.payment_id = t.payment_id",
        &changed.iter().map(|p| p.intent.payment_id.0).collect::<Vec<_>>(),
        &changed.iter().map(|p| p.payment.status.as_str().to_owned()).collect::<Vec<_>>(),
        &changed.iter().map(|p| p.version).collect::<Vec<_>>(),
        &references as &[Option<String>],
        &codes as &[Option<String>],
    )
    .execute(conn)
    .await?;
    if written.rows_affected() == changed.len() as u64 {
        return Ok(());
    }
    Err(StepError::failed(format!("{} payments were locked and {} written", changed.len(), written.rows_affected())))
}

pub(crate) async fn get_payment(conn: &mut PgConnection, payment_id: Uuid) -> Result<Option<PaymentRow>, sqlx::Error> {
    sqlx::query_as!(
        PaymentRow,
        "select payment_id, order_id, saga_id, amount, currency, method, status, gateway_reference, decline_code,
            cancelled_at, captured_at, refunded_at, version, created_at, updated_at
        from payment
        where payment_id = $1",
        payment_id,
    )
    .fetch_optional(conn)
    .await
}

/// The order's payment, without a lock.
pub(crate) async fn find_payment(
    conn: &mut PgConnection,
    order_id: OrderId,
) -> Result<Option<PaymentRow>, sqlx::Error> {
    Ok(rows_of(conn, &[order_id]).await?.pop())
}

/// Newest first; `before` is the last payment of the previous page.
pub(crate) async fn list_payments(
    conn: &mut PgConnection,
    before: Uuid,
    limit: i64,
) -> Result<Vec<PaymentRow>, sqlx::Error> {
    sqlx::query_as!(
        PaymentRow,
        "select payment_id, order_id, saga_id, amount, currency, method, status, gateway_reference, decline_code,
            cancelled_at, captured_at, refunded_at, version, created_at, updated_at
        from payment
        where payment_id < $1
        order by payment_id desc
        limit $2",
        before,
        limit,
    )
    .fetch_all(conn)
    .await
}

fn uuids(orders: &[OrderId]) -> Vec<Uuid> {
    orders.iter().map(|order| order.0).collect()
}
