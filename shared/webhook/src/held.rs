//! Events that are held back. Of each aggregate only the first is posted; the others follow it. An operator requeues or discards a
//! parked one.

use std::time::Duration;

use messaging::{
    interval,
    outbox::PublishedRow,
    relay::target::{PendingRow, Published, Stop},
};
use serde::Serialize;
use sqlx::{Connection, PgConnection, PgPool};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Obstacle,
    position::{self, Lease},
    settle::{Aggregate, Held, Why, aggregate},
};

/// Stores an event that is held back, to be posted again after `wait` at the earliest if it has failed; parked without it.
pub(crate) async fn hold_back(
    conn: &mut PgConnection,
    held: &Held<'_>,
    wait: Option<Duration>,
) -> Result<(), sqlx::Error> {
    let (error, parked) = match held.why {
        Why::Follows => (None, false),
        Why::Failed(error) => (Some(error), wait.is_none()),
        Why::Refused(error) => (Some(error), true),
    };
    let PublishedRow { ordinal, aggregate_type, event } = held.row;
    sqlx::query!(
        "insert into webhook_event
            (event_id, ordinal, aggregate_type, aggregate_id, aggregate_sequence, event_type, headers, payload, saga_id, created_at,
            state, attempts, next_attempt_at, last_error)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, case when $11 then 'PARKED' else 'PENDING' end, $12, now() + $13::interval, $14)
        on conflict (event_id) do nothing",
        event.event_id,
        *ordinal,
        aggregate_type.as_str(),
        event.aggregate_id,
        event.aggregate_sequence,
        event.event_type,
        event.headers,
        event.payload,
        event.saga_id,
        event.created_at,
        parked,
        i32::from(error.is_some()),
        wait.filter(|_| error.is_some()).map(interval),
        error,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Those of these events' aggregates of which an event is held back.
pub(crate) async fn blocked(conn: &mut PgConnection, rows: &[PublishedRow]) -> Result<Vec<Aggregate>, sqlx::Error> {
    let (types, ids): (Vec<_>, Vec<_>) = rows.iter().map(aggregate).unzip();
    let blocked = sqlx::query!(
        "select distinct aggregate_type, aggregate_id
        from webhook_event
        where (aggregate_type, aggregate_id) in (select * from unnest($1::text[], $2::text[]))",
        &types,
        &ids,
    );
    let rows = blocked.fetch_all(conn).await?;
    Ok(rows.into_iter().map(|row| (row.aggregate_type, row.aggregate_id)).collect())
}

/// Of each aggregate the first held event, if it is due.
pub(crate) async fn due(conn: &mut PgConnection, limit: i64) -> Result<Vec<PublishedRow>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select e.event_id, e.ordinal, e.aggregate_type, e.aggregate_id, e.aggregate_sequence, e.event_type, e.headers, e.payload,
            e.saga_id, e.created_at, e.attempts
        from (
            select distinct on (aggregate_type, aggregate_id) *
            from webhook_event
            order by aggregate_type, aggregate_id, ordinal
        ) e
        where e.state = 'PENDING' and coalesce(e.next_attempt_at, now()) <= now()
        order by e.ordinal
        limit $1"#,
        limit,
    );
    let due = rows.fetch_all(conn).await?.into_iter().map(|row| PublishedRow {
        ordinal: row.ordinal,
        aggregate_type: row.aggregate_type,
        event: PendingRow {
            event_id: row.event_id,
            position: row.ordinal,
            aggregate_id: row.aggregate_id,
            aggregate_sequence: row.aggregate_sequence,
            event_type: row.event_type,
            subject: String::new(),
            headers: row.headers,
            payload: row.payload,
            saga_id: row.saga_id,
            created_at: row.created_at,
            republication: 0,
            attempts: row.attempts,
        },
    });
    Ok(due.collect())
}

/// Whether a held event will be posted again without an operator.
pub(crate) async fn any_waits(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (select from webhook_event where state = 'PENDING' and attempts > 0) as "waits!""#
    )
    .fetch_one(conn)
    .await
}

/// Stores the endpoint's answer to held events: deletes those that it accepted. `wait` is the wait after so many failed attempts; `None`
/// parks the event. False when another replica has the lease: then nothing is written.
pub(crate) async fn record(
    conn: &mut PgConnection,
    lease: &Lease,
    events: &[PendingRow],
    published: &Published<Uuid, Obstacle>,
    wait: impl Fn(u32) -> Option<Duration>,
) -> Result<bool, sqlx::Error> {
    let mut transaction = conn.begin().await?;
    if !position::lock(&mut transaction, lease).await? {
        return Ok(false);
    }
    sqlx::query!("delete from webhook_event where event_id = any($1)", &published.receipts)
        .execute(&mut *transaction)
        .await?;
    for stop in &published.stops {
        let (event_id, error, refused) = match stop {
            Stop::Refused { event_id, error } => (event_id, error, true),
            Stop::NotNow { event_id, obstacle: Obstacle::Failed(error) } => (event_id, error, false),
            Stop::NotNow { obstacle: Obstacle::Away(_), .. } => continue,
        };
        let attempts = events.iter().find(|event| event.event_id == *event_id).map_or(0, |event| event.attempts);
        let wait = wait(attempts.unsigned_abs().saturating_add(1)).filter(|_| !refused);
        sqlx::query!(
            "update webhook_event
            set attempts = attempts + 1, last_error = $2, next_attempt_at = now() + $3::interval,
                state = case when $3::interval is null then 'PARKED' else 'PENDING' end
            where event_id = $1 and state = 'PENDING'",
            *event_id,
            error.as_str(),
            wait.map(interval),
        )
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// An event that is held back.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WebhookEvent)]
pub struct HeldEvent {
    pub event_id: Uuid,
    /// Its place in the order in which this service's events were published.
    pub ordinal: i64,
    pub event_type: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub aggregate_sequence: i64,
    #[schema(required = true)]
    pub saga_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// `PARKED`: it waits for an operator. `PENDING`: it is posted again, or an earlier event of its aggregate is held back.
    pub state: String,
    /// How often it failed or was refused.
    pub attempts: i32,
    #[schema(required = true)]
    pub last_error: Option<String>,
}

/// Held events, the oldest first, after this one.
pub async fn list(pool: &PgPool, state: Option<&str>, after: i64, limit: i64) -> Result<Vec<HeldEvent>, sqlx::Error> {
    sqlx::query_as!(
        HeldEvent,
        "select event_id, ordinal, event_type, aggregate_type, aggregate_id, aggregate_sequence, saga_id, created_at, state, attempts,
            last_error
        from webhook_event
        where ordinal > $2 and ($1::text is null or state = $1)
        order by ordinal
        limit $3",
        state,
        after,
        limit,
    )
    .fetch_all(pool)
    .await
}

/// What an operator's action found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recall {
    Done,
    NotParked,
    Unknown,
}

/// Has a parked event posted again, with as many attempts as a new one.
pub async fn requeue(conn: &mut PgConnection, event_id: Uuid) -> Result<Recall, sqlx::Error> {
    let requeue = sqlx::query!(
        "update webhook_event set state = 'PENDING', attempts = 0, next_attempt_at = now() where event_id = $1 and state = 'PARKED'",
        event_id,
    );
    let done = requeue.execute(&mut *conn).await?.rows_affected() > 0;
    if done { Ok(Recall::Done) } else { found(conn, event_id).await }
}

/// Deletes a parked event: it is never posted, and the later events of its aggregate are.
pub async fn discard(conn: &mut PgConnection, event_id: Uuid) -> Result<Recall, sqlx::Error> {
    let discard = sqlx::query!("delete from webhook_event where event_id = $1 and state = 'PARKED'", event_id);
    let done = discard.execute(&mut *conn).await?.rows_affected() > 0;
    if done { Ok(Recall::Done) } else { found(conn, event_id).await }
}

async fn found(conn: &mut PgConnection, event_id: Uuid) -> Result<Recall, sqlx::Error> {
    let exists =
        sqlx::query_scalar!(r#"select exists (select from webhook_event where event_id = $1) as "exists!""#, event_id);
    Ok(if exists.fetch_one(conn).await? { Recall::NotParked } else { Recall::Unknown })
}
