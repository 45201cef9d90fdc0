//! What is overdue: timed-out sagas that nobody has cancelled, and compensations without their receipts.

use messaging::{Context, SagaRef, StepError, TraceContext};
use saga::SagaDefinition;
use sqlx::PgConnection;
use uuid::Uuid;

/// A saga whose compensation takes too long, or has not even begun.
#[derive(Debug, Clone)]
pub struct Overdue {
    pub saga_id: Uuid,
    pub business_key: Uuid,
    /// How often it was driven again already.
    pub attempts: i16,
    /// The step at which the saga turned back.
    pub failed_at_step: Option<String>,
    correlation_id: String,
    trace_id: String,
    last_event_id: Uuid,
    baggage: Option<String>,
    traceparent: Option<String>,
}

impl Overdue {
    /// The context of driving it on.
    pub fn context(&self, definition: &SagaDefinition) -> Context {
        Context {
            saga: Some(SagaRef { saga_id: self.saga_id, saga_type: definition.saga_type.to_owned() }),
            correlation_id: self.correlation_id.clone(),
            causation_id: Some(self.last_event_id),
            trace: began_in(self.traceparent.as_deref(), &self.trace_id),
            baggage: self.baggage.as_deref().map(Into::into),
        }
    }
}

/// The trace context in which the saga began.
pub(crate) fn began_in(traceparent: Option<&str>, trace_id: &str) -> TraceContext {
    let told = traceparent.and_then(|told| told.parse().ok());
    told.or_else(|| TraceContext::in_trace(trace_id)).unwrap_or_else(TraceContext::root)
}

/// Locks a batch of overdue sagas; those that another transaction works on are left to it.
pub async fn overdue(
    conn: &mut PgConnection,
    definition: &SagaDefinition,
    batch: i64,
) -> Result<Vec<Overdue>, StepError> {
    let found = sqlx::query_as!(
        Overdue,
        "select saga_id, business_key, compensation_attempts as attempts, failed_at_step, correlation_id,
            trace_id, last_event_id, baggage, traceparent
        from saga.saga_instance
        where saga_type = $1 and status in ('TIMED_OUT', 'COMPENSATING') and compensation_deadline < now()
        order by compensation_deadline
        limit $2
        for update skip locked",
        definition.saga_type,
        batch,
    )
    .fetch_all(conn)
    .await?;
    Ok(found)
}

/// One saga as if it were overdue: for an operator who will not wait.
pub async fn named(conn: &mut PgConnection, saga_id: Uuid) -> Result<Option<Overdue>, StepError> {
    let found = sqlx::query_as!(
        Overdue,
        "select saga_id, business_key, compensation_attempts as attempts, failed_at_step, correlation_id,
            trace_id, last_event_id, baggage, traceparent
        from saga.saga_instance
        where saga_id = $1
        for update",
        saga_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found)
}
