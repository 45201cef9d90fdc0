//! The journal of the service's circuit breakers: every change of state, in every replica.

use sqlx::PgPool;
use time::OffsetDateTime;

/// One change.
#[derive(Debug, Clone)]
pub struct BreakerChange {
    pub changed_at: OffsetDateTime,
    pub replica: String,
    pub step: String,
    pub from_state: String,
    pub to_state: String,
    pub why: String,
}

pub async fn write(
    pool: &PgPool,
    replica: &str,
    step: &str,
    from_state: &str,
    to_state: &str,
    why: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into breaker_change (replica, step, from_state, to_state, why)
        values ($1, $2, $3, $4, $5)",
        replica,
        step,
        from_state,
        to_state,
        why,
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
