//! The SQL of the outbox: rows are appended in the business transaction, read in order, and moved when published.

mod history;
mod inspect;
mod parked;
mod past;
mod published;

use std::{ops::RangeInclusive, time::Duration};

use saga::{Kind, Service, Step};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::interval;

pub use history::{Change, history};
pub use inspect::{Entry, get, list};
pub use parked::{Parked, discard, parked, requeue};
pub(crate) use parked::{park, replay_parked};
pub use past::{PastEvent, of_aggregate};
pub use published::{PublishedRow, Whereabouts, published_after, republish, whereabouts};

/// The range of ids older than `before`, or of all ids.
pub(crate) fn ids_before(before: Option<Uuid>) -> RangeInclusive<Uuid> {
    let last = before.map_or(u128::MAX, |id| id.as_u128().saturating_sub(1));
    Uuid::nil()..=Uuid::from_u128(last)
}

/// The placeholder step of events that belong to no saga.
pub(crate) const NO_STEP: Step =
    Step { service: None, ..Step::on_request(0, "none", Service("none"), &[], Kind::Projection) };

/// An event to append to the outbox.
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

/// Appends the rows in order.
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

/// An event as it is published.
#[derive(Debug, Clone)]
pub struct PendingRow {
    pub event_id: Uuid,
    /// Its place in the outbox.
    pub position: i64,
    pub aggregate_id: String,
    pub aggregate_sequence: i64,
    pub event_type: String,
    pub subject: String,
    /// Headers and body, as JSON.
    pub headers: String,
    pub payload: String,
    pub saga_id: Option<Uuid>,
    pub created_at: OffsetDateTime,
    /// How often it was published again because the broker had lost it.
    pub republication: i32,
    /// How often the target has refused it.
    pub attempts: i32,
}

/// The next rows after `watermark`, in order, for the relay of `epoch`; none while it is paused or not active any more. All rows
/// of an aggregate with a parked or delayed row are left out. A row that may be retried lies below the watermark, so only a read
/// from the start finds it.
///
/// With a synchronous standby, the rows come when it has them: what a transaction sees may be lost with the primary, if its commit
/// did not wait to the end. So this statement commits something of its own, after it has read, and waits for that.
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
                -- None is delayed for as long as a minute, but by a clock that was ahead.
                and (state = 'PARKED' or next_attempt_at > now() and next_attempt_at < now() + interval '1 minute' or $2::bigint > 0)
        ), found as materialized (
            select *
            from outbox o
            where o.position > $2
                and exists (select from relay_lease l where l.epoch = $1 and not l.paused)
                -- A filter: a generic plan might join, lose the order, and sort all rows.
                and (o.aggregate_type, o.aggregate_id) not in (select aggregate_type, aggregate_id from blocked)
            order by o.position
            limit $3
        ), barrier as materialized (
            select pg_logical_emit_message(true, 'relay', '') as written
            where current_setting('synchronous_standby_names') <> '' and exists (select from found)
        )
        select o.event_id, o.position, o.aggregate_id, o.aggregate_sequence, o.event_type, o.subject,
            o.headers::text as "headers!", o.payload::text as "payload!", o.saga_id, o.created_at, o.republication, o.attempts
        from found o
        left join barrier on barrier.written is not null
        order by o.position"#,
        epoch,
        watermark,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// How long the oldest event has waited to be published for the first time. Events behind a refused or parked event of their
/// aggregate do not count: they wait for an operator, and other aggregates are not affected.
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

/// Whether a writing transaction of this service has been open for longer than `age`: its rows may still appear below the
/// positions that have been read. Other database users cannot write to the outbox.
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

/// The broker's acknowledgement of one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement {
    pub(crate) event_id: Uuid,
    pub(crate) sequence: i64,
}

/// The relay that moves rows, the epoch of its lease, and the stream.
#[derive(Debug, Clone)]
pub(crate) struct Mover<'a> {
    pub(crate) holder: &'a str,
    pub(crate) epoch: i64,
    pub(crate) lease: Duration,
    pub(crate) stream: &'a str,
    pub(crate) stream_epoch: i64,
}

/// Moves acknowledged rows to `outbox_published`, stores the last acknowledgement and renews the lease, in one statement. False
/// when another relay holds the lease: then nothing was written. Its having no join makes 1,130 to 1,200 sagas/s of 970 to 1,060
/// while a transaction is held open. It waits neither for the disk nor for a standby: at 60 orders a second, 6 % of the server's
/// processor time flushes its log, instead of 10 (decision 96).
pub(crate) async fn move_published(
    conn: &mut PgConnection,
    mover: &Mover<'_>,
    acks: &[Acknowledgement],
) -> Result<bool, sqlx::Error> {
    let Some(last) = acks.iter().max_by_key(|r| r.sequence) else { return Ok(true) };
    let mut sorted = acks.to_vec();
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
            -- Of one aggregate, the ordinals follow the positions.
            order by position
            on conflict (event_id) do update
            set published_at = excluded.published_at, stream_sequence = excluded.stream_sequence,
                stream_epoch = excluded.stream_epoch, relay = excluded.relay, republication = excluded.republication
        )
        -- Only a move that a crash undoes is repeated, as if the crash had come before it.
        select exists (select from leader) and set_config('synchronous_commit', 'off', true) = 'off' as "leads!""#,
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

/// Delays this event without counting an attempt.
pub(crate) async fn postpone(pool: &PgPool, event_id: Uuid, wait: Duration) -> Result<(), sqlx::Error> {
    sqlx::query!("update outbox set next_attempt_at = now() + $2 where event_id = $1", event_id, interval(wait))
        .execute(pool)
        .await?;
    Ok(())
}
