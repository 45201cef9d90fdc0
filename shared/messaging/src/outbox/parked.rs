//! What an operator can do about parked events: let them be tried again, or give them up. Either way their aggregates'
//! followers go on, and it is written down who did it and why.

use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

/// Which parked events; `None` does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Parked {
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    pub event_type: Option<String>,
    pub aggregate_id: Option<String>,
    /// Only older ones.
    pub created_before: Option<OffsetDateTime>,
}

/// How many there are, and the ids of the oldest of them.
pub async fn parked(pool: &PgPool, which: &Parked, limit: i64) -> Result<(i64, Vec<Uuid>), sqlx::Error> {
    let found = sqlx::query!(
        // The first condition is that of their index.
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

/// Lets parked events (and with them their aggregates' followers) be tried again; returns those that were parked.
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

/// Gives a parked event up: it will never be published, and its aggregate's followers are. False when it is not parked.
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

/// One thing that an operator did to an event.
#[derive(Debug, Clone)]
pub struct Action {
    pub acted_at: OffsetDateTime,
    pub actor: String,
    /// `REQUEUE` or `DISCARD`.
    pub action: String,
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
