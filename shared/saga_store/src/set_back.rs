//! After the database's clock was ahead for a while, and was set back: what was written meanwhile lies ahead, and would hold sagas up
//! until the clock has come there. What lies further ahead than it can counts from now.

use messaging::interval;
use saga::SagaDefinition;
use sqlx::PgExecutor;

/// Counts the deadlines of such compensations of this definition from now, and their lack of progress; returns how many. Sagas that
/// another transaction has locked are left for the next round. Twice the definition's deadline, because another build may have had a
/// longer one. The deadlines of sagas that move forward stay: where the clock was behind instead, all would pass when it is right again.
pub async fn count_from_now(db: impl PgExecutor<'_>, definition: &SagaDefinition) -> Result<i64, sqlx::Error> {
    let counted = sqlx::query_scalar!(
        r#"with counted as (
            update saga.saga_instance
            set compensation_deadline = now() + $2::interval * 2 ^ compensation_attempts,
                last_progress_at = least(last_progress_at, now())
            where saga_id in (
                select saga_id from saga.saga_instance
                where status in ('TIMED_OUT', 'COMPENSATING') and saga_type = $1
                    and compensation_deadline > now() + 2 * $2::interval
                    and compensation_deadline > now() + 2 * $2::interval * 2 ^ compensation_attempts
                for update skip locked)
            returning saga_id
        )
        select count(*) as "counted!" from counted"#,
        definition.saga_type,
        interval(definition.compensation.deadline),
    )
    .fetch_one(db)
    .await?;
    if counted > 0 {
        tracing::warn!(
            counted,
            "deadlines of compensations lay further ahead than they can, as after the database's clock was set back; they count from now"
        );
    }
    Ok(counted)
}
