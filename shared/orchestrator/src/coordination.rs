//! Who drives which saga. A lease is only a division of work: two replicas that drive one saga lock its row for each transition,
//! and the participants answer a repeated command as before.

use std::time::Duration;

use messaging::{Context, SagaRef, StepError, TraceContext, interval};
use saga::{SagaDefinition, SagaState};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// A saga as its coordinator reads it.
#[derive(Debug)]
pub(crate) struct Position {
    pub(crate) business_key: Uuid,
    pub(crate) state: SagaState,
    pub(crate) context: Context,
    /// What is left of the step's limit; none when the step has not begun.
    pub(crate) step_left: Option<Duration>,
    /// What is left until the deadline that applies, of the saga or of its compensation; none when there is none.
    pub(crate) left: Option<Duration>,
}

/// How far ahead a time can lie, at most. One that lies further ahead was written while the database's clock was ahead; without
/// these, its saga would be left alone until the clock has come there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Longest {
    pub(crate) lease: Duration,
    pub(crate) step: Duration,
    /// Of the first attempt to compensate; each has twice the time of the one before.
    pub(crate) compensation: Duration,
}

/// New sagas, in the transaction that starts them.
pub(crate) async fn begin(
    conn: &mut PgConnection,
    replica: Uuid,
    saga_ids: &[Uuid],
    limit: Duration,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into saga.coordination (saga_id, replica, step_deadline, not_before)
        select saga_id, $1, now() + $3, '-infinity' from unnest($2::uuid[]) as t (saga_id)",
        replica,
        saga_ids,
        interval(limit),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Renews the replica's lease, and forgets replicas that have been gone for a day.
pub(crate) async fn renew_lease(pool: &PgPool, replica: Uuid, lease: Duration) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with gone as (delete from saga.coordinator where leased_until < now() - interval '1 day')
        insert into saga.coordinator (replica, leased_until) values ($1, now() + $2)
        on conflict (replica) do update set leased_until = excluded.leased_until",
        replica,
        interval(lease),
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Ends the replica's lease, so that others need not wait for it.
pub(crate) async fn end_lease(pool: &PgPool, replica: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from saga.coordinator where replica = $1", replica).execute(pool).await?;
    Ok(())
}

/// Takes sagas over that no living replica drives, and those of this replica that it does not drive although their step's limit
/// has passed: `driven` are the others. Their steps have their whole limit again. Returns them.
pub(crate) async fn take_over(
    pool: &PgPool,
    replica: Uuid,
    driven: &[Uuid],
    limit: i64,
    longest: Longest,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "update saga.coordination
        set replica = $1, step_deadline = null
        where saga_id in (
            select saga_id from saga.coordination c
            where (not_before <= now()
                    or not_before < 'infinity' and not_before > now() + 2 * $6::interval and exists (
                        select from saga.saga_instance s
                        where s.saga_id = c.saga_id
                            and c.not_before > now() + 2 * $6::interval * 2 ^ s.compensation_attempts))
                and (case when c.replica = $1
                    -- One that has just begun is driven in a moment.
                    then saga_id <> all($2)
                        and coalesce(step_deadline not between clock_timestamp() and clock_timestamp() + 2 * $5::interval, true)
                    else not exists (
                        select from saga.coordinator r
                        where r.replica = c.replica and r.leased_until between now() and now() + 2 * $4::interval) end)
            order by not_before
            limit $3
            for update skip locked
        )
        returning saga_id",
        replica,
        driven,
        limit,
        interval(longest.lease),
        interval(longest.step),
        interval(longest.compensation),
    )
    .fetch_all(pool)
    .await
}

/// The saga's position; none when it is another replica's, or has ended.
pub(crate) async fn read(
    pool: &PgPool,
    definition: &SagaDefinition,
    saga_id: Uuid,
    replica: Uuid,
) -> Result<Option<Position>, StepError> {
    let found = sqlx::query!(
        r#"select business_key, status, current_step, past_pivot, receipts_due, correlation_id, trace_id,
            traceparent, baggage,
            extract(epoch from step_deadline - clock_timestamp())::float8 as step_left,
            extract(epoch from case when status in ('STARTED', 'IN_PROGRESS') then deadline else compensation_deadline end
                - clock_timestamp())::float8 as left
        from saga.saga_instance
        join saga.coordination using (saga_id)
        where saga_id = $1 and replica = $2"#,
        saga_id,
        replica,
    )
    .fetch_optional(pool)
    .await?;
    let Some(row) = found else { return Ok(None) };
    let parent = row.traceparent.and_then(|text| text.parse().ok());
    Ok(Some(Position {
        business_key: row.business_key,
        state: SagaState {
            status: row.status.parse().map_err(StepError::failed)?,
            current_step: u8::try_from(row.current_step).unwrap_or(u8::MAX),
            past_pivot: row.past_pivot,
            receipts_due: row.receipts_due,
        },
        context: Context {
            saga: Some(SagaRef { saga_id, saga_type: definition.saga_type.to_owned() }),
            correlation_id: row.correlation_id,
            causation_id: None,
            trace: parent.or_else(|| TraceContext::in_trace(&row.trace_id)).unwrap_or_else(TraceContext::root),
            baggage: row.baggage.map(Into::into),
        },
        step_left: row.step_left.map(seconds),
        left: row.left.map(seconds),
    }))
}

/// Zero when the time has passed.
fn seconds(left: f64) -> Duration {
    Duration::try_from_secs_f64(left).unwrap_or_default()
}

/// What becomes of a saga after a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// It is driven on; the next step has this limit.
    Driven(Duration),
    /// It waits for its compensation's deadline, at most as long as an attempt has; this is the time of the first.
    Waiting(Duration),
    /// It waits for an operator.
    Parked,
    Ended,
}

/// Writes what becomes of the saga, whose row is locked. False when the replica does not drive it any more.
pub(crate) async fn keep(
    conn: &mut PgConnection,
    saga_id: Uuid,
    replica: Uuid,
    kept: Kept,
) -> Result<bool, sqlx::Error> {
    if matches!(kept, Kept::Ended) {
        let ended = sqlx::query!("delete from saga.coordination where saga_id = $1 and replica = $2", saga_id, replica);
        return Ok(ended.execute(conn).await?.rows_affected() == 1);
    }
    let (limit, attempt) = match kept {
        Kept::Driven(limit) => (Some(interval(limit)), None),
        Kept::Waiting(attempt) => (None, Some(interval(attempt))),
        Kept::Parked | Kept::Ended => (None, None),
    };
    let done = sqlx::query!(
        "update saga.coordination c
        set step_deadline = clock_timestamp() + $3::interval,
            replica = case when $3::interval is not null then c.replica end,
            not_before = case
                when $3::interval is not null then c.not_before
                when $4::interval is not null
                    then least(coalesce(s.compensation_deadline, now()), now() + $4 * 2 ^ s.compensation_attempts)
                else 'infinity'
            end
        from saga.saga_instance s
        where c.saga_id = $1 and s.saga_id = $1 and c.replica = $2",
        saga_id,
        replica,
        limit,
        attempt,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Has these sagas driven on: by the replica that drives them, or else by the next one that looks.
pub(crate) async fn hand_over(conn: &mut PgConnection, saga_ids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into saga.coordination (saga_id, step_deadline, not_before)
        select saga_id, null, '-infinity' from unnest($1::uuid[]) as t (saga_id)
        on conflict (saga_id) do update set not_before = '-infinity', step_deadline = null",
        saga_ids,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Those of these sagas that are of this type.
pub(crate) async fn of_type(
    conn: &mut PgConnection,
    definition: &SagaDefinition,
    saga_ids: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select saga_id from saga.saga_instance where saga_id = any($1) and saga_type = $2",
        saga_ids,
        definition.saga_type,
    )
    .fetch_all(conn)
    .await
}
