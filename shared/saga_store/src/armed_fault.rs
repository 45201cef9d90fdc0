//! Faults that are armed in all replicas of a service, with a common count of passes.

use std::time::Duration;

use messaging::interval;
use saga::Service;
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

/// A fault to be armed.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFault {
    pub service: Service,
    pub fault_id: i64,
    pub annotation_id: Uuid,
    /// The name that dashboards show.
    pub title: String,
    pub spec: Value,
    pub armed_by: String,
    pub lasts: Duration,
}

/// An armed fault, as the database has it.
#[derive(Debug, Clone)]
pub struct SharedFault {
    pub fault_id: i64,
    pub spec: Value,
    pub armed_by: String,
    pub armed_at: OffsetDateTime,
    /// Seconds until it expires; not positive once it has expired.
    pub seconds_left: f64,
    pub passes: i64,
    pub hits: i64,
    pub disarmed: bool,
}

/// Writes a fault and its annotation; a repeat changes nothing.
pub async fn arm(pool: &PgPool, fault: &NewFault) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with annotation as (
            insert into saga.annotation (annotation_id, kind, title, service, ended_at)
            values ($1, 'fault', $2, $3, now() + $4)
            on conflict do nothing
        )
        insert into saga.armed_fault (service, fault_id, annotation_id, spec, armed_by)
        values ($3, $5, $1, $6, $7)
        on conflict do nothing",
        fault.annotation_id,
        fault.title,
        fault.service.0,
        interval(fault.lasts),
        fault.fault_id,
        fault.spec,
        fault.armed_by,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The faults of a service that have not expired, and those in `held`.
pub async fn load(pool: &PgPool, service: Service, held: &[i64]) -> Result<Vec<SharedFault>, sqlx::Error> {
    sqlx::query_as!(
        SharedFault,
        r#"with wanted as (
            select unnest($2::bigint[]) as fault_id
            union
            select f.fault_id
            from saga.annotation a
            join saga.armed_fault f using (annotation_id)
            where a.kind = 'fault' and a.ended_at > now() and f.service = $1
        )
        select f.fault_id, f.spec, f.armed_by, a.began_at as armed_at,
            extract(epoch from a.ended_at - now())::float8 as "seconds_left!", f.passes, f.hits, f.disarmed
        from wanted w
        join saga.armed_fault f on f.service = $1 and f.fault_id = w.fault_id
        join saga.annotation a using (annotation_id)"#,
        service.0,
        held,
    )
    .fetch_all(pool)
    .await
}

/// The number of a fault's next pass, unique among all replicas; none when there is no such fault. With the pass `last`
/// the fault's annotation ends.
pub async fn next_pass(
    pool: &PgPool,
    service: Service,
    fault_id: i64,
    last: Option<i64>,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!(
        "with counted as (
            update saga.armed_fault
            set passes = passes + 1
            where service = $1 and fault_id = $2
            returning passes, annotation_id
        ), ended as (
            update saga.annotation
            set ended_at = now()
            where annotation_id in (select annotation_id from counted where passes = $3) and ended_at > now()
        )
        select passes from counted",
        service.0,
        fault_id,
        last,
    )
    .fetch_optional(pool)
    .await
}

/// Disarms the faults: they hit no further pass, and release the passes that they hold.
pub async fn disarm(pool: &PgPool, service: Service, faults: &[i64]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with disarmed as (
            update saga.armed_fault
            set disarmed = true
            where service = $1 and fault_id = any($2) and not disarmed
            returning annotation_id
        )
        update saga.annotation
        set ended_at = now()
        where annotation_id in (select annotation_id from disarmed) and ended_at > now()",
        service.0,
        faults,
    )
    .execute(pool)
    .await?;
    Ok(())
}
