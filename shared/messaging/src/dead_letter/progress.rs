//! The table of replay batches: the request and the progress of each.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::BatchRequest;
use crate::outbox::ids_before;

/// A batch of replays.
#[derive(Debug, Clone)]
pub struct Batch {
    pub replay_id: Uuid,
    pub requested_at: OffsetDateTime,
    pub requested_by: String,
    pub reason: Option<String>,
    pub filter: Value,
    /// The entries, fixed at the request, in the order of their replay.
    pub ids: Vec<Uuid>,
    pub ramp: Vec<i32>,
    /// `RUNNING`, `DONE` or `STOPPED`.
    pub state: String,
    pub resolved: i32,
    pub failed: i32,
    /// Entries that were replayed elsewhere at their turn, or can no longer be replayed.
    pub skipped: i32,
    pub stopped_entry: Option<Uuid>,
    pub stopped_why: Option<String>,
    pub updated_at: OffsetDateTime,
}

/// Why a batch stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = StoppedBy))]
pub struct Stop {
    /// The entry whose replay failed; null when something else stopped the batch.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub dead_letter_id: Option<Uuid>,
    pub error: String,
}

impl Batch {
    /// How many entries were replayed, with any outcome.
    pub fn replayed(&self) -> i32 {
        self.resolved + self.failed
    }

    pub fn stopped_by(&self) -> Option<Stop> {
        let error = self.stopped_why.clone()?;
        Some(Stop { dead_letter_id: self.stopped_entry, error })
    }
}

pub async fn batch(pool: &PgPool, replay_id: Uuid) -> Result<Option<Batch>, sqlx::Error> {
    Ok(select(pool, replay_id..=replay_id, 1).await?.pop())
}

/// Newest first; `before` is the last one of the previous page.
pub async fn batches(pool: &PgPool, before: Option<Uuid>, limit: i64) -> Result<Vec<Batch>, sqlx::Error> {
    select(pool, ids_before(before), limit).await
}

/// A batch without progress for two minutes is shown as stopped: its replica is gone.
async fn select(pool: &PgPool, ids: RangeInclusive<Uuid>, limit: i64) -> Result<Vec<Batch>, sqlx::Error> {
    sqlx::query_as!(
        Batch,
        r#"select replay_id, requested_at, requested_by, reason, filter as "filter: Value", ids, ramp,
            case when lost then 'STOPPED' else state end as "state!", resolved, failed, skipped, stopped_entry,
            case when lost then 'its replica has not been heard of for two minutes' else stopped_why end as stopped_why,
            updated_at
        from dead_letter_replay,
            lateral (select state = 'RUNNING' and updated_at < now() - interval '2 minutes') as l (lost)
        where replay_id between $1 and $2
        order by replay_id desc
        limit $3"#,
        ids.start(),
        ids.end(),
        limit,
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn insert(
    pool: &PgPool,
    replay_id: Uuid,
    request: &BatchRequest,
    ids: &[Uuid],
) -> Result<Batch, sqlx::Error> {
    let filter = serde_json::to_value(&request.selection).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query!(
        "insert into dead_letter_replay (replay_id, requested_by, reason, filter, ids, ramp)
        values ($1, $2, $3, $4, $5, $6)",
        replay_id,
        request.actor,
        request.reason,
        filter,
        ids,
        &request.ramp,
    )
    .execute(pool)
    .await?;
    batch(pool, replay_id).await?.ok_or(sqlx::Error::RowNotFound)
}

/// Stores a sign of progress. Returns false when the batch is already shown as stopped.
pub(super) async fn touch(pool: &PgPool, replay_id: Uuid) -> Result<bool, sqlx::Error> {
    let touched = sqlx::query!(
        "update dead_letter_replay
        set updated_at = now()
        where replay_id = $1 and state = 'RUNNING' and updated_at > now() - interval '2 minutes'",
        replay_id,
    )
    .execute(pool)
    .await?;
    Ok(touched.rows_affected() == 1)
}

/// Counts one entry as resolved, failed or (`None`) skipped. A batch that is shown as stopped stays so.
pub(super) async fn count_entry(
    conn: &mut PgConnection,
    replay_id: Uuid,
    resolved: Option<bool>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update dead_letter_replay
        set resolved = resolved + $2, failed = failed + $3, skipped = skipped + $4,
            updated_at = case when updated_at > now() - interval '2 minutes' then now() else updated_at end
        where replay_id = $1",
        replay_id,
        i32::from(resolved == Some(true)),
        i32::from(resolved == Some(false)),
        i32::from(resolved.is_none()),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the end of a batch, and why it stopped.
pub(super) async fn finish(pool: &PgPool, replay_id: Uuid, stop: Option<&Stop>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update dead_letter_replay
        set state = case when $2::text is null then 'DONE' else 'STOPPED' end, stopped_why = $2, stopped_entry = $3,
            updated_at = now()
        where replay_id = $1 and state = 'RUNNING'",
        replay_id,
        stop.map(|s| s.error.as_str()),
        stop.and_then(|s| s.dead_letter_id),
    )
    .execute(pool)
    .await?;
    Ok(())
}
