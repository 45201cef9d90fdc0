//! Hits of faults: written before the fault acts, and named by the saga's next journal entry.

use saga::Service;
use sqlx::PgPool;
use uuid::Uuid;

/// One hit.
#[derive(Debug, Clone)]
pub struct FaultHit {
    /// None when the hit is outside any saga.
    pub saga_id: Option<Uuid>,
    pub service: Service,
    pub step: Option<&'static str>,
    pub fault_id: u64,
    pub point: &'static str,
    pub kind: &'static str,
}

pub async fn write(pool: &PgPool, hit: &FaultHit) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with counted as (
            update saga.armed_fault set hits = hits + 1 where service = $2 and fault_id = $4
        )
        insert into saga.fault_hit (saga_id, service, step, fault_id, point, kind)
        values ($1, $2, $3, $4, $5, $6)",
        hit.saga_id,
        hit.service.0,
        hit.step,
        i64::try_from(hit.fault_id).unwrap_or(i64::MAX),
        hit.point,
        hit.kind,
    )
    .execute(pool)
    .await?;
    Ok(())
}
