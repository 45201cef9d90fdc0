//! Parked events: those that the broker has refused. They are requeued or discarded, by an operator or after a while by the relay.
//! Both let the later events of their aggregates continue, and are stored with actor and reason.

use std::time::Duration;

use serde::Deserialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::interval;

/// Selects the parked events that match all of these conditions; `{}` selects all.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ParkedFilter))]
#[serde(deny_unknown_fields)]
pub struct Parked {
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    pub event_type: Option<String>,
    pub aggregate_id: Option<String>,
    /// Only older ones.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub created_before: Option<OffsetDateTime>,
    /// Only those written at least so long ago.
    pub older_than_seconds: Option<u32>,
    /// Only those that the broker has refused at least so often.
    pub min_attempts: Option<i32>,
}

/// The number of matching events, and the ids of the oldest ones.
pub async fn parked(pool: &PgPool, which: &Parked, limit: i64) -> Result<(i64, Vec<Uuid>), sqlx::Error> {
    let found = sqlx::query!(
        // The first condition is that of the partial index.
        r#"with found as materialized (
            select event_id, position
            from outbox
            where (state = 'PARKED' or next_attempt_at is not null) and state = 'PARKED'
                and ($1::text is null or event_type = $1 or event_type like $1 || '.v%')
                and ($2::text is null or aggregate_id = $2)
                and ($3::timestamptz is null or created_at < $3)
                and ($5::float8 is null or created_at < now() - make_interval(secs => $5))
                and ($6::integer is null or attempts >= $6)
        )
        select (select count(*) from found) as "count!",
            array(select event_id from found order by position limit $4) as "ids!""#,
        which.event_type,
        which.aggregate_id,
        which.created_before,
        limit,
        which.older_than_seconds.map(f64::from),
        which.min_attempts,
    )
    .fetch_one(pool)
    .await?;
    Ok((found.count, found.ids))
}

/// Parks an event that the broker refuses: it is too large, and stays so. A retry would change nothing.
pub(crate) async fn park(pool: &PgPool, relay: &str, event_id: Uuid, error: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with parked as (
            update outbox
            set state = 'PARKED', attempts = attempts + 1, last_error = $3, next_attempt_at = now()
            where event_id = $2
            returning event_id, attempts
        )
        insert into outbox_attempt (event_id, attempt, relay, error)
        select event_id, attempts, $1, $3
        from parked
        on conflict (event_id, attempt) do update
        set attempted_at = excluded.attempted_at, relay = excluded.relay, error = excluded.error",
        relay,
        event_id,
        error,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Requeues parked events, and with them the later events of their aggregates; returns those that were parked.
pub async fn requeue(
    conn: &mut PgConnection,
    event_ids: &[Uuid],
    actor: &str,
    reason: &str,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "with requeued as (
            update outbox
            set state = 'PENDING', next_attempt_at = now()
            where event_id = any($1) and state = 'PARKED'
            returning event_id
        )
        insert into outbox_action (event_id, actor, action, reason)
        select event_id, $2, 'REQUEUE', $3
        from requeued
        returning event_id",
        event_ids,
        actor,
        reason,
    )
    .fetch_all(conn)
    .await
}

/// Requeues events that have been parked for this long, for the relay of `epoch`. After each further refusal an event waits twice
/// as long, at most a day. Returns how many.
pub(crate) async fn replay_parked(conn: &mut PgConnection, epoch: i64, after: Duration) -> Result<u64, sqlx::Error> {
    let requeued = sqlx::query!(
        "with requeued as (
            update outbox
            set state = 'PENDING', next_attempt_at = now()
            where (state = 'PARKED' or next_attempt_at is not null) and state = 'PARKED'
                and coalesce(next_attempt_at, created_at) < now()
                    - least($2::interval * power(2, least(greatest(attempts, 1), 18) - 1), greatest($2, interval '1 day'))
                and exists (select from relay_lease l where l.epoch = $1 and not l.paused)
            returning event_id, attempts
        )
        insert into outbox_action (event_id, actor, action, reason)
        select event_id, 'relay', 'REQUEUE', 'parked for long enough, after refusal ' || attempts
        from requeued",
        epoch,
        interval(after),
    );
    Ok(requeued.execute(conn).await?.rows_affected())
}

/// Discards parked events: they are never published, while later events of their aggregates are. Returns those that were parked.
pub async fn discard(
    conn: &mut PgConnection,
    event_ids: &[Uuid],
    actor: &str,
    reason: &str,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "with discarded as (
            delete from outbox
            where event_id = any($1) and state = 'PARKED'
            returning *
        )
        insert into outbox_action (event_id, actor, action, reason, event)
        select event_id, $2, 'DISCARD', $3, to_json(discarded)
        from discarded
        returning event_id",
        event_ids,
        actor,
        reason,
    )
    .fetch_all(conn)
    .await
}
