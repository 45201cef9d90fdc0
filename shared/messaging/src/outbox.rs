//! The SQL of the outbox: append in the business transaction, read in order, move when published.

mod inspect;
mod parked;

use std::{collections::HashMap, time::Duration};

use saga::{Kind, Step, Trigger};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::lease::interval;

pub use inspect::{Attempt, Entry, attempts, get, list};
pub use parked::{Action, Parked, actions, discard, parked, requeue};

/// What stands in for the step of events that belong to no saga.
pub(crate) const NO_STEP: Step = Step {
    number: 0,
    name: "none",
    service: None,
    on: Trigger::Http,
    emits: &[],
    kind: Kind::Projection,
    retry: saga::Retry::DEFAULT,
    breaker: saga::Breaker::DEFAULT,
    time_limit: Step::TIME_LIMIT,
};

/// An event on its way into the outbox.
#[derive(Debug)]
pub(crate) struct OutboxRow {
    pub(crate) event_id: Uuid,
    pub(crate) aggregate_type: &'static str,
    pub(crate) aggregate_id: String,
    pub(crate) aggregate_sequence: i64,
    pub(crate) event_type: String,
    pub(crate) subject: String,
    pub(crate) headers: String,
    pub(crate) payload: String,
    pub(crate) saga_id: Option<Uuid>,
}

/// Appends the rows in their order.
pub(crate) async fn append(conn: &mut PgConnection, rows: &[OutboxRow]) -> Result<(), sqlx::Error> {
    let column = |of: fn(&OutboxRow) -> &str| -> Vec<String> { rows.iter().map(|r| of(r).to_owned()).collect() };
    sqlx::query!(
        "insert into outbox
            (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)
        select event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
            headers::json, payload::json, saga_id
        from unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::uuid[])
            as t (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload, saga_id)",
        &rows.iter().map(|r| r.event_id).collect::<Vec<_>>(),
        &column(|r| r.aggregate_type),
        &column(|r| &r.aggregate_id),
        &rows.iter().map(|r| r.aggregate_sequence).collect::<Vec<_>>(),
        &column(|r| &r.event_type),
        &column(|r| &r.subject),
        &column(|r| &r.headers),
        &column(|r| &r.payload),
        &rows.iter().map(|r| r.saga_id).collect::<Vec<_>>() as &[Option<Uuid>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An event that waits to be published.
#[derive(Debug, Clone)]
pub(crate) struct PendingRow {
    pub(crate) event_id: Uuid,
    pub(crate) position: i64,
    pub(crate) aggregate_id: String,
    pub(crate) aggregate_sequence: i64,
    pub(crate) event_type: String,
    pub(crate) subject: String,
    pub(crate) headers: String,
    pub(crate) payload: String,
    pub(crate) saga_id: Option<Uuid>,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) republication: i32,
}

/// The next rows after `watermark`, in order, for the relay of `epoch`; none while it is paused or
/// no longer the active one. An aggregate with a parked or waiting row is left out whole; a row that may be
/// tried again lies below the watermark, so only a read from the beginning takes it up.
pub(crate) async fn next(
    conn: &mut PgConnection,
    epoch: i64,
    watermark: i64,
    limit: i64,
) -> Result<Vec<PendingRow>, sqlx::Error> {
    sqlx::query_as!(
        PendingRow,
        r#"with blocked as materialized (
            select aggregate_type, aggregate_id
            from outbox
            where (state = 'PARKED' or next_attempt_at is not null)
                and (state = 'PARKED' or next_attempt_at > now() or $2::bigint > 0)
        )
        select o.event_id, o.position, o.aggregate_id, o.aggregate_sequence, o.event_type, o.subject,
            o.headers::text as "headers!", o.payload::text as "payload!", o.saga_id, o.created_at, o.republication
        from outbox o
        where o.position > $2
            and exists (select from relay_lease l where l.epoch = $1 and not l.paused)
            and not exists (
                select from blocked b
                where b.aggregate_type = o.aggregate_type and b.aggregate_id = o.aggregate_id
            )
        order by o.position
        limit $3"#,
        epoch,
        watermark,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// For how long the oldest event has waited to be published for the first time. What waits behind a refused or parked event
/// does not count: its aggregate's events wait for an operator, and all others go on.
pub async fn oldest_waiting(pool: &PgPool) -> Result<Option<Duration>, sqlx::Error> {
    let age = sqlx::query_scalar!(
        r#"with blocked as materialized (
            select aggregate_type, aggregate_id
            from outbox
            where state = 'PARKED' or next_attempt_at is not null
        )
        select extract(epoch from now() - o.created_at)::float8 as "age!"
        from outbox o
        where o.republication = 0
            and not exists (
                select from blocked b
                where b.aggregate_type = o.aggregate_type and b.aggregate_id = o.aggregate_id
            )
        order by o.position
        limit 1"#,
    )
    .fetch_optional(pool)
    .await?;
    Ok(age.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))
}

/// Whether a transaction of this service that writes has been open for longer than `age`: a row of it may
/// still appear below what has been read. Nobody else can write to the outbox.
pub(crate) async fn old_writer(conn: &mut PgConnection, age: Duration) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (
            select from pg_stat_activity
            where usename = current_user and backend_xid is not null
                -- Null where activities are not tracked.
                and (xact_start is null or xact_start < clock_timestamp() - $1::interval)
        ) as "open!""#,
        interval(age),
    )
    .fetch_one(conn)
    .await
}

/// The broker's receipt of one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receipt {
    pub(crate) event_id: Uuid,
    pub(crate) sequence: i64,
}

/// Who moves rows: one relay, in one epoch of its lease, from one stream.
#[derive(Debug, Clone)]
pub(crate) struct Mover<'a> {
    pub(crate) holder: &'a str,
    pub(crate) epoch: i64,
    pub(crate) lease: Duration,
    pub(crate) stream: &'a str,
    pub(crate) stream_epoch: i64,
}

/// Moves acknowledged rows to `outbox_published`, keeps the last receipt and renews the lease, all
/// in one statement. False when the lease is somebody else's by now: then nothing was written.
pub(crate) async fn move_published(
    conn: &mut PgConnection,
    mover: &Mover<'_>,
    receipts: &[Receipt],
) -> Result<bool, sqlx::Error> {
    let Some(last) = receipts.iter().max_by_key(|r| r.sequence) else { return Ok(true) };
    let mut sorted = receipts.to_vec();
    sorted.sort_unstable_by_key(|r| r.event_id);
    let moved = sqlx::query_scalar!(
        r#"with leader as (
            update relay_lease
            set expires_at = now() + $3, stream_epoch = $4, last_receipt_at = now(),
                -- Receipts of duplicates are old; the last one must not go back.
                last_sequence = case when stream_epoch = $4 then greatest(last_sequence, $5) else $5 end,
                last_event_id = case when stream_epoch = $4 and last_sequence > $5 then last_event_id else $6 end
            where holder = $1 and epoch = $2
            returning true
        ), gone as (
            -- No join: to the planner a table of few rows and many dead ones looks cheaper to read whole.
            delete from outbox
            where event_id = any($7) and exists (select from leader)
            returning *
        ), kept as (
            insert into outbox_published as p
                (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
                payload, saga_id, created_at, stream, stream_sequence, stream_epoch, relay, republication)
            select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
                payload, saga_id, created_at, $9,
                -- A binary search for the event's place.
                ($8::bigint[])[width_bucket(event_id, $7::uuid[])],
                $4, $1, republication
            from gone
            on conflict (event_id) do update
            set published_at = excluded.published_at, stream_sequence = excluded.stream_sequence,
                stream_epoch = excluded.stream_epoch, relay = excluded.relay, republication = excluded.republication
        )
        select exists (select from leader) as "leads!""#,
        mover.holder,
        mover.epoch,
        interval(mover.lease),
        mover.stream_epoch,
        last.sequence,
        last.event_id,
        &sorted.iter().map(|r| r.event_id).collect::<Vec<_>>(),
        &sorted.iter().map(|r| r.sequence).collect::<Vec<_>>(),
        mover.stream,
    )
    .fetch_one(conn)
    .await?;
    Ok(moved)
}

/// Lets this event wait, without counting anything against it.
pub(crate) async fn postpone(pool: &PgPool, event_id: Uuid, wait: Duration) -> Result<(), sqlx::Error> {
    sqlx::query!("update outbox set next_attempt_at = now() + $2 where event_id = $1", event_id, interval(wait))
        .execute(pool)
        .await?;
    Ok(())
}

/// Counts a refusal of this one message; after the last attempt it is parked. Returns whether it is.
pub(crate) async fn count_refusal(
    pool: &PgPool,
    relay: &str,
    event_id: Uuid,
    error: &str,
    wait: Duration,
    max_attempts: i32,
) -> Result<bool, sqlx::Error> {
    let parked = sqlx::query_scalar!(
        r#"with counted as (
            update outbox
            set attempts = attempts + 1, last_error = $3, next_attempt_at = now() + $4,
                state = case when attempts + 1 >= $5 then 'PARKED' else 'PENDING' end
            where event_id = $2
            returning event_id, attempts, state
        ), kept as (
            insert into outbox_attempt (event_id, attempt, relay, error)
            select event_id, attempts, $1, $3
            from counted
            on conflict (event_id, attempt) do update
            set attempted_at = excluded.attempted_at, relay = excluded.relay, error = excluded.error
        )
        select state = 'PARKED' as "parked!" from counted"#,
        relay,
        event_id,
        error,
        interval(wait),
        max_attempts,
    )
    .fetch_optional(pool)
    .await?;
    Ok(parked.unwrap_or(false))
}

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In the outbox, maybe parked.
    Waiting,
    /// In the stream of this epoch, if that has not lost it.
    Published { stream_epoch: i64, sequence: i64 },
}

/// Where these events are, as far as that is known (any more).
pub async fn whereabouts(
    conn: &mut PgConnection,
    event_ids: &[Uuid],
) -> Result<HashMap<Uuid, Whereabouts>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select event_id as "event_id!", stream_epoch, stream_sequence
        from (
            select p.event_id, case when v.event_id is null then p.stream_epoch else 0 end as stream_epoch, p.stream_sequence
            from outbox_published p
            left join void_receipt v on v.event_id = p.event_id
            where p.event_id = any($1)
            union all
            select event_id, null, null from outbox where event_id = any($1)
        ) as place"#,
        event_ids,
    )
    .fetch_all(conn)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        // One that is published once more is in both.
        match (row.stream_epoch, row.stream_sequence) {
            (Some(stream_epoch), Some(sequence)) => {
                found.entry(row.event_id).or_insert(Whereabouts::Published { stream_epoch, sequence });
            }
            _ => {
                found.insert(row.event_id, Whereabouts::Waiting);
            }
        }
    }
    Ok(found)
}

/// Puts published events back, in their order, to be published once more: same event, same id, but
/// another broker message id, so that the broker's deduplication lets the repeat through.
pub async fn republish(conn: &mut PgConnection, event_ids: &[Uuid]) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "insert into outbox
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, republication)
        overriding system value
        select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, republication + 1
        from outbox_published
        where event_id = any($1)
        order by position
        on conflict do nothing",
        event_ids,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
