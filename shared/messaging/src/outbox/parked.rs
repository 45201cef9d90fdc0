//! An operator's actions on parked events: requeue or discard them. Both let the later events of their aggregates continue, and
//! are stored with actor and reason.

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

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
        )
        select (select count(*) from found) as "count!",
            array(select event_id from found order by position limit $4) as "ids!""#,
        which.event_type,
        which.aggregate_id,
        which.created_before,
        limit,
    )
    .fetch_one(pool)
    .await?;
    Ok((found.count, found.ids))
}

/// Requeues parked events, and with them the later events of their aggregates; returns those that were parked.
pub async fn requeue(
    conn: &mut PgConnection,
    event_ids: &[Uuid],
    actor: &str,
    reason: Option<&str>,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "with requeued as (
            update outbox
            set state = 'PENDING', attempts = 0, next_attempt_at = now()
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

/// Discards a parked event: it is never published, while later events of its aggregate are. False when it is not parked.
pub async fn discard(conn: &mut PgConnection, event_id: Uuid, actor: &str, reason: &str) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "with discarded as (
            delete from outbox
            where event_id = $1 and state = 'PARKED'
            returning *
        )
        insert into outbox_action (event_id, actor, action, reason, event)
        select event_id, $2, 'DISCARD', $3, to_json(discarded)
        from discarded",
        event_id,
        actor,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// One action of an operator on an event.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = OutboxAction))]
pub struct Action {
    #[serde(with = "time::serde::rfc3339")]
    pub acted_at: OffsetDateTime,
    pub actor: String,
    /// `REQUEUE` or `DISCARD`.
    pub action: String,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reason: Option<String>,
}

pub async fn actions(pool: &PgPool, event_id: Uuid) -> Result<Vec<Action>, sqlx::Error> {
    sqlx::query_as!(
        Action,
        "select acted_at, actor, action, reason
        from outbox_action
        where event_id = $1
        order by action_id",
        event_id,
    )
    .fetch_all(pool)
    .await
}
