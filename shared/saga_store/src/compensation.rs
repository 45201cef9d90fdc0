//! What is overdue: timed-out sagas that nobody has cancelled, and compensations without their receipts.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use messaging::{
    Context, SagaRef, StepError, TraceContext,
    acknowledged::StreamView,
    lease::interval,
    outbox::{self, Whereabouts},
};
use saga::{EventType, SagaDefinition, Status};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StepTransaction;

/// A saga whose compensation takes too long, or has not even begun.
#[derive(Debug, Clone)]
pub struct Overdue {
    pub saga_id: Uuid,
    pub business_key: Uuid,
    /// How often it was driven again already.
    pub attempts: i16,
    /// The step at which the saga turned back.
    pub failed_at_step: Option<String>,
    /// Who has not confirmed the undo.
    pub receipts_due: Vec<String>,
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
        "select saga_id, business_key, compensation_attempts as attempts, failed_at_step, receipts_due,
            correlation_id, trace_id, last_event_id, baggage, traceparent
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

/// Sagas as if they were overdue: for an operator who will not wait. Unknown ids are left out.
pub async fn named(conn: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Overdue>, StepError> {
    let found = sqlx::query_as!(
        Overdue,
        "select saga_id, business_key, compensation_attempts as attempts, failed_at_step, receipts_due,
            correlation_id, trace_id, last_event_id, baggage, traceparent
        from saga.saga_instance
        where saga_id = any($1)
        order by saga_id
        for update",
        saga_ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(found)
}

/// The sagas whose last cancellation, an event of this type, has not come to everybody who owes a receipt: it waits in the
/// outbox, or in the stream for a consumer. While the broker is away, whatever it was given is on its way.
pub async fn under_way(
    tx: &mut StepTransaction<()>,
    cancellation: EventType,
    overdue: &[Overdue],
    stream: Option<&StreamView>,
) -> Result<HashSet<Uuid>, StepError> {
    let ids: Vec<Uuid> = overdue.iter().map(|saga| saga.saga_id).collect();
    let told = last_told(tx.conn(), cancellation, &ids).await?;
    let places = outbox::whereabouts(tx.conn(), &told.values().copied().collect::<Vec<_>>()).await?;
    let undos = tx.definition().steps.iter().filter(|step| step.consumes() == Some(cancellation));
    let consumers: HashMap<&str, String> = undos.filter_map(|step| Some((step.service?.0, step.consumer()))).collect();
    let is_under_way = |saga: &&Overdue| match told.get(&saga.saga_id).and_then(|event_id| places.get(event_id)) {
        None => false,
        Some(Whereabouts::Waiting) => true,
        Some(Whereabouts::Published { stream_epoch, sequence }) => stream.is_none_or(|stream| {
            let due = saga.receipts_due.iter().filter_map(|service| consumers.get(service.as_str()));
            due.into_iter().any(|consumer| stream.owes(consumer, *stream_epoch, *sequence))
        }),
    };
    Ok(overdue.iter().filter(is_under_way).map(|saga| saga.saga_id).collect())
}

/// The last event of this type that each of the sagas has told, if any.
async fn last_told(
    conn: &mut PgConnection,
    event: EventType,
    saga_ids: &[Uuid],
) -> Result<HashMap<Uuid, Uuid>, StepError> {
    let told = sqlx::query!(
        r#"select distinct on (saga_id) saga_id, event_id as "event_id!"
        from saga.saga_step
        where saga_id = any($1) and event_type = $2 and event_id is not null
        order by saga_id, position desc"#,
        saga_ids,
        event.wire_name(),
    )
    .fetch_all(conn)
    .await?;
    Ok(told.into_iter().map(|row| (row.saga_id, row.event_id)).collect())
}

/// Looks at these sagas again after `wait`, and counts nothing. They are locked.
pub async fn postpone(conn: &mut PgConnection, saga_ids: &[Uuid], wait: Duration) -> Result<(), StepError> {
    sqlx::query!(
        "update saga.saga_instance
        set compensation_deadline = now() + $2
        where saga_id = any($1)",
        saga_ids,
        interval(wait),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Which of the sagas that are being undone, or were given up; `None` does not restrict.
#[derive(Debug, Clone)]
pub struct Unsettled {
    pub status: Status,
    /// Who has not confirmed the undo.
    pub due_from: Option<String>,
    pub failed_at_step: Option<String>,
    /// Only sagas that began at least this many seconds ago.
    pub older_than_seconds: Option<f64>,
}

/// How many there are, and the ids of the oldest of them.
pub async fn unsettled(pool: &PgPool, which: &Unsettled, limit: i64) -> Result<(i64, Vec<Uuid>), sqlx::Error> {
    let found = sqlx::query!(
        // The first condition is that of their index.
        r#"with found as materialized (
            select saga_id
            from saga.saga_instance
            where status in ('TIMED_OUT', 'COMPENSATING', 'FAILED') and status = $1
                and ($2::text is null or $2 = any(receipts_due))
                and ($3::text is null or failed_at_step = $3)
                and ($4::float8 is null or started_at < now() - make_interval(secs => $4))
        )
        select (select count(*) from found) as "count!",
            array(select saga_id from found order by saga_id limit $5) as "ids!""#,
        which.status.as_str(),
        which.due_from,
        which.failed_at_step,
        which.older_than_seconds,
        limit,
    )
    .fetch_one(pool)
    .await?;
    Ok((found.count, found.ids))
}
