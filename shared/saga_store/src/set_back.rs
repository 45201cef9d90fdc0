//! After the database's clock was ahead for a while, and was set back: what was written meanwhile lies ahead, and would hold sagas up
//! until the clock has come there. What lies further ahead than it can counts from now.

use messaging::interval;
use saga::SagaDefinition;
use sqlx::PgExecutor;

/// Counts the deadlines of such sagas of this definition from now, and their lack of progress; returns how many. Sagas that another
/// transaction has locked are left for the next round. Twice the definition's deadlines, because another build may have had longer ones.
pub async fn count_from_now(db: impl PgExecutor<'_>, definition: &SagaDefinition) -> Result<i64, sqlx::Error> {
    let counted = sqlx::query_scalar!(
        r#"with forward as (
            update saga.saga_instance
            set deadline = now() + $2::interval, last_progress_at = least(last_progress_at, now())
            where saga_id in (
                select saga_id from saga.saga_instance
                where status in ('STARTED', 'IN_PROGRESS') and saga_type = $1 and deadline > now() + 2 * $2::interval
                for update skip locked)
            returning saga_id
        ), backward as (
            update saga.saga_instance
            set compensation_deadline = now() + $3::interval * 2 ^ compensation_attempts,
                last_progress_at = least(last_progress_at, now())
            where saga_id in (
                select saga_id from saga.saga_instance
                where status in ('TIMED_OUT', 'COMPENSATING') and saga_type = $1
                    and compensation_deadline > now() + 2 * $3::interval
                    and compensation_deadline > now() + 2 * $3::interval * 2 ^ compensation_attempts
                for update skip locked)
            returning saga_id
        )
        select (select count(*) from forward) + (select count(*) from backward) as "counted!""#,
        definition.saga_type,
        interval(definition.deadline),
        interval(definition.compensation.deadline),
    )
    .fetch_one(db)
    .await?;
    if counted > 0 {
        tracing::warn!(
            counted,
            "deadlines lay further ahead than they can, as after the database's clock was set back; they count from now"
        );
    }
    Ok(counted)
}
