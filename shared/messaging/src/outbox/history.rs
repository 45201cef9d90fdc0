//! What happened to one event of the outbox: each state that it entered, when, by whom, and why.

use serde::Serialize;
use sqlx::PgPool;
use time::OffsetDateTime;

use super::Entry;

/// A state that an event entered.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = OutboxChange))]
pub struct Change {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// `PENDING`: it was written or requeued; `PARKED`: the broker refused it; `PUBLISHED`, `DISCARDED`.
    pub state: String,
    /// The relay that tried to publish it, or who requeued or discarded it; `relay` if it was requeued after a while. Null when it
    /// was written.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub by: Option<String>,
    /// The broker's error, or the reason of the action.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub why: Option<String>,
}

/// Oldest first. Of several publications, after the broker has lost the event, only the last one is known. Refusals and actions are
/// kept as long as dead letters.
pub async fn history(pool: &PgPool, entry: &Entry) -> Result<Vec<Change>, sqlx::Error> {
    let written = Change { at: entry.created_at, state: "PENDING".to_owned(), by: None, why: None };
    let later = sqlx::query_as!(
        Change,
        r#"select at as "at!", state as "state!", by, why
        from (
            select attempted_at as at, 'PARKED' as state, relay as by, error as why
            from outbox_attempt
            where event_id = $1
            union all
            select acted_at, case action when 'REQUEUE' then 'PENDING' else 'DISCARDED' end, actor, reason
            from outbox_action
            where event_id = $1
            union all
            select published_at, 'PUBLISHED', relay, null
            from outbox_published
            where event_id = $1
        ) change
        order by at"#,
        entry.event_id,
    );
    let later = later.fetch_all(pool).await?;
    Ok(std::iter::once(written).chain(later).collect())
}
