//! Queries of sagas, for reading.

use saga::{Service, Status};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

/// A saga's row.
#[derive(Debug, Clone)]
pub struct SagaView {
    pub saga_id: Uuid,
    pub saga_type: String,
    pub business_key: Uuid,
    pub correlation_id: String,
    pub trace_id: String,
    pub status: String,
    pub current_step: i16,
    pub total_steps: i16,
    pub receipts_due: Vec<String>,
    pub started_at: OffsetDateTime,
    pub deadline: OffsetDateTime,
    pub compensation_deadline: Option<OffsetDateTime>,
    pub compensation_attempts: i16,
    pub completed_at: Option<OffsetDateTime>,
    pub failure_reason: Option<String>,
    pub failed_at_step: Option<String>,
    pub last_progress_at: OffsetDateTime,
}

/// One entry of a saga's journal.
#[derive(Debug, Clone)]
pub struct StepView {
    pub position: i32,
    pub step_number: i16,
    pub step: String,
    pub service: String,
    pub direction: String,
    pub event_type: String,
    pub event_id: Option<Uuid>,
    pub status: String,
    pub occurred_at: OffsetDateTime,
    pub reason: Option<String>,
    pub fault: Option<String>,
}

/// Which sagas to list; `None` does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Filter<'a> {
    pub status: Option<Status>,
    pub saga_type: Option<&'a str>,
    pub business_key: Option<Uuid>,
    pub correlation_id: Option<&'a str>,
    /// Only sagas that began at least this many seconds ago.
    pub older_than_seconds: Option<f64>,
}

/// The sagas before `before`, newest first, and whether each matches the filter. Reads at most `limit` of them. A filter by
/// order, by correlation id, or by a status of sagas that run or have failed, uses an index of its own and reads matching sagas
/// only.
pub async fn walk(
    pool: &PgPool,
    filter: &Filter<'_>,
    before: Uuid,
    limit: i64,
) -> Result<Vec<(Uuid, bool)>, sqlx::Error> {
    let Filter { status, saga_type, business_key, correlation_id, older_than_seconds } = filter;
    let name = status.map(Status::as_str);
    if let Some(business_key) = business_key {
        let rows = sqlx::query!(
            r#"select saga_id, ($1::text is null or status = $1)
                and ($2::text is null or saga_type = $2)
                and ($3::float8 is null or started_at < now() - make_interval(secs => $3))
                and ($7::text is null or correlation_id = $7) as "wanted!"
            from saga.saga_instance
            where business_key = $4 and saga_id < $5
            order by saga_id desc
            limit $6"#,
            name,
            *saga_type,
            *older_than_seconds,
            business_key,
            before,
            limit,
            *correlation_id,
        );
        return Ok(rows.fetch_all(pool).await?.into_iter().map(|row| (row.saga_id, row.wanted)).collect());
    }
    if let Some(correlation_id) = correlation_id {
        let rows = sqlx::query!(
            r#"select saga_id, ($1::text is null or status = $1)
                and ($2::text is null or saga_type = $2)
                and ($3::float8 is null or started_at < now() - make_interval(secs => $3)) as "wanted!"
            from saga.saga_instance
            where correlation_id = $4 and saga_id < $5
            order by saga_id desc
            limit $6"#,
            name,
            *saga_type,
            *older_than_seconds,
            *correlation_id,
            before,
            limit,
        );
        return Ok(rows.fetch_all(pool).await?.into_iter().map(|row| (row.saga_id, row.wanted)).collect());
    }
    if !matches!(status, None | Some(Status::Completed | Status::Compensated)) {
        let rows = sqlx::query_scalar!(
            // Two halves, because each has an index of its own.
            r#"with open as materialized (
                select saga_id, saga_type, status, started_at from saga.saga_instance
                where status in ('STARTED', 'IN_PROGRESS')
                union all
                select saga_id, saga_type, status, started_at from saga.saga_instance
                where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
            )
            select saga_id as "saga_id!"
            from open
            where status = $1
                and ($2::text is null or saga_type = $2)
                and ($3::float8 is null or started_at < now() - make_interval(secs => $3))
                and saga_id < $4
            order by saga_id desc
            limit $5"#,
            name,
            *saga_type,
            *older_than_seconds,
            before,
            limit,
        );
        return Ok(rows.fetch_all(pool).await?.into_iter().map(|saga_id| (saga_id, true)).collect());
    }
    let rows = sqlx::query!(
        r#"select saga_id, ($1::text is null or status = $1)
            and ($2::text is null or saga_type = $2)
            and ($3::float8 is null or started_at < now() - make_interval(secs => $3)) as "wanted!"
        from saga.saga_instance
        where saga_id < $4
        order by saga_id desc
        limit $5"#,
        name,
        *saga_type,
        *older_than_seconds,
        before,
        limit,
    );
    Ok(rows.fetch_all(pool).await?.into_iter().map(|row| (row.saga_id, row.wanted)).collect())
}

/// The sagas, newest first.
pub async fn list(pool: &PgPool, saga_ids: &[Uuid]) -> Result<Vec<SagaView>, sqlx::Error> {
    sqlx::query_as!(
        SagaView,
        "select saga_id, saga_type, business_key, correlation_id, trace_id, status, current_step, total_steps,
            receipts_due, started_at, deadline, compensation_deadline, compensation_attempts, completed_at,
            failure_reason, failed_at_step, last_progress_at
        from saga.saga_instance
        where saga_id = any($1)
        order by saga_id desc",
        saga_ids,
    )
    .fetch_all(pool)
    .await
}

pub async fn get(pool: &PgPool, saga_id: Uuid) -> Result<Option<SagaView>, sqlx::Error> {
    Ok(list(pool, &[saga_id]).await?.pop())
}

/// The saga's journal, from the first entry on.
pub async fn journal(pool: &PgPool, saga_id: Uuid) -> Result<Vec<StepView>, sqlx::Error> {
    sqlx::query_as!(
        StepView,
        "select position, step_number, step, service, direction, event_type, event_id, status, occurred_at, reason, fault
        from saga.saga_step
        where saga_id = $1
        order by position",
        saga_id,
    )
    .fetch_all(pool)
    .await
}

/// The number of sagas by status; COMPLETED and COMPENSATED ones are counted among the latest 10,000 only, because their
/// number is unbounded.
pub async fn counts(pool: &PgPool) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select status as "status!", count(*) as "count!"
        from (
            select status from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')
            union all
            select status from saga.saga_instance where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
            union all
            select status
            from (select status from saga.saga_instance order by saga_id desc limit 10000) as latest
            where status in ('COMPLETED', 'COMPENSATED')
        ) as counted
        group by status"#,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| (r.status, r.count)).collect())
}

/// The age of the oldest running saga, in seconds.
pub async fn oldest_active_seconds(pool: &PgPool) -> Result<Option<f64>, sqlx::Error> {
    sqlx::query_scalar!(
        // Two halves, because each has an index of its own.
        "select extract(epoch from now() - min(started_at))::float8
        from (
            select started_at from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')
            union all
            select started_at from saga.saga_instance where status in ('TIMED_OUT', 'COMPENSATING')
        ) as running",
    )
    .fetch_one(pool)
    .await
}

pub(crate) async fn open_events(conn: &mut PgConnection, service: Service) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        // Three parts, because each has an index of its own. A completed saga can owe a step after its pivot.
        r#"with open as materialized (
            select saga_id from saga.saga_instance where status in ('STARTED', 'IN_PROGRESS')
            union all
            select saga_id from saga.saga_instance where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
            union all
            select saga_id from saga.saga_instance where status = 'COMPLETED' and receipts_due <> '{}'
        )
        select s.event_id as "event_id!"
        from open
        join saga.saga_step s using (saga_id)
        where s.service = $1 and s.event_id is not null"#,
        service.0,
    )
    .fetch_all(conn)
    .await
}

/// Those of these sagas that are no longer COMPLETED. None is locked.
pub(crate) async fn reopened(conn: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select saga_id from saga.saga_instance where saga_id = any($1) and status <> 'COMPLETED'",
        saga_ids,
    )
    .fetch_all(conn)
    .await
}

/// Purges a batch of old finished sagas that owe nothing; returns how many. Only order's role has the permission.
pub async fn purge(conn: &mut PgConnection, retention: std::time::Duration, batch: i32) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"select saga.purge_terminal($1, $2) as "purged!""#, messaging::interval(retention), batch)
        .fetch_one(conn)
        .await
}
