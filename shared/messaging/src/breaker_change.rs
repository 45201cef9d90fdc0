//! The journal of the service's circuit breakers: each state change in each replica.

use resilience::Change;
use serde::Serialize;
use sqlx::PgPool;
use time::OffsetDateTime;

/// One state change of a breaker.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BreakerChange {
    #[serde(rename = "at", with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
    pub replica: String,
    pub step: String,
    #[serde(rename = "from")]
    pub from_state: String,
    #[serde(rename = "to")]
    pub to_state: String,
    pub why: String,
}

pub async fn write(pool: &PgPool, replica: &str, change: &Change) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into breaker_change (replica, step, from_state, to_state, why)
        values ($1, $2, $3, $4, $5)",
        replica,
        change.step,
        change.from.label(),
        change.to.label(),
        change.why,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The latest changes, newest first.
pub async fn latest(pool: &PgPool, limit: i64) -> Result<Vec<BreakerChange>, sqlx::Error> {
    sqlx::query_as!(
        BreakerChange,
        "select changed_at, replica, step, from_state, to_state, why
        from breaker_change
        order by changed_at desc
        limit $1",
        limit,
    )
    .fetch_all(pool)
    .await
}
