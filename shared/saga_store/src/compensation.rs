//! Overdue sagas: those that timed out and are not cancelled, and those whose compensation still lacks receipts.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use messaging::{
    Context, SagaRef, StepError, TraceContext,
    acknowledged::StreamView,
    interval,
    outbox::{self, Whereabouts},
};
use saga::{EventType, SagaDefinition, Status};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{Cause, Sagas, StepTransaction};

/// A saga whose compensation is overdue, or has not begun in time.
#[derive(Debug, Clone)]
pub struct Overdue {
    pub saga_id: Uuid,
    pub business_key: Uuid,
    /// The number of retries so far.
    pub attempts: i16,
    /// The step that refused, detected the timeout, or cancelled.
    pub failed_at_step: Option<String>,
    /// The services whose receipt is missing.
    pub receipts_due: Vec<String>,
    correlation_id: String,
    trace_id: String,
    last_event_id: Uuid,
    baggage: Option<String>,
    traceparent: Option<String>,
}

impl Cause for Overdue {
    fn id(&self) -> Uuid {
        self.saga_id
    }

    fn saga_id(&self) -> Option<Uuid> {
        Some(self.saga_id)
    }

    fn context(&self, sagas: &Sagas) -> Context {
        Context {
            saga: Some(SagaRef { saga_id: self.saga_id, saga_type: sagas.definition().saga_type.to_owned() }),
            correlation_id: self.correlation_id.clone(),
            causation_id: Some(self.last_event_id),
            trace: initial_trace(self.traceparent.as_deref(), &self.trace_id),
            baggage: self.baggage.as_deref().map(Into::into),
        }
    }
}

/// The trace context in which the saga began.
pub(crate) fn initial_trace(traceparent: Option<&str>, trace_id: &str) -> TraceContext {
    let parent = traceparent.and_then(|text| text.parse().ok());
    parent.or_else(|| TraceContext::in_trace(trace_id)).unwrap_or_else(TraceContext::root)
}

/// Locks a batch of overdue sagas; skips those that another transaction has locked.
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

/// Locks these sagas as if they were overdue: for an operator's resume. Unknown ids are skipped.
pub async fn lock_by_ids(conn: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Overdue>, StepError> {
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

/// The consumers of this event: the service that each belongs to, and its name.
pub fn readers(definition: &SagaDefinition, event: EventType) -> impl Iterator<Item = (&'static str, String)> {
    let readers = definition.steps.iter().filter(move |step| step.consumes() == Some(event));
    readers.filter_map(|step| Some((step.service?.0, step.consumer())))
}

/// The sagas whose last cancellation, an event of this type, is not yet delivered to every service that owes a receipt: it is
/// pending in the outbox, or in the stream for one of its [`readers`]. While the broker cannot be reached, published events count as pending.
pub async fn under_way(
    tx: &mut StepTransaction<()>,
    cancellation: EventType,
    overdue: &[Overdue],
    stream: Option<&StreamView>,
) -> Result<HashSet<Uuid>, StepError> {
    let ids: Vec<Uuid> = overdue.iter().map(|saga| saga.saga_id).collect();
    let published = last_published(tx.conn(), cancellation, &ids).await?;
    let places = outbox::whereabouts(tx.conn(), &published.values().copied().collect::<Vec<_>>()).await?;
    let consumers: HashMap<&str, String> = readers(tx.definition(), cancellation).collect();
    let is_under_way = |saga: &&Overdue| match published.get(&saga.saga_id).and_then(|event_id| places.get(event_id)) {
        None => false,
        Some(Whereabouts::Waiting) => true,
        Some(Whereabouts::Published { stream_epoch, sequence }) => stream.is_none_or(|stream| {
            let due = saga.receipts_due.iter().filter_map(|service| consumers.get(service.as_str()));
            due.into_iter().any(|consumer| stream.owes(consumer, *stream_epoch, *sequence))
        }),
    };
    Ok(overdue.iter().filter(is_under_way).map(|saga| saga.saga_id).collect())
}

/// The last event of this type that was published for each of the sagas, if any.
async fn last_published(
    conn: &mut PgConnection,
    event: EventType,
    saga_ids: &[Uuid],
) -> Result<HashMap<Uuid, Uuid>, StepError> {
    let published = sqlx::query!(
        r#"select distinct on (saga_id) saga_id, event_id as "event_id!"
        from saga.saga_step
        where saga_id = any($1) and event_type = $2 and event_id is not null
        order by saga_id, position desc"#,
        saga_ids,
        event.wire_name(),
    )
    .fetch_all(conn)
    .await?;
    Ok(published.into_iter().map(|row| (row.saga_id, row.event_id)).collect())
}

/// Postpones the next check of these locked sagas by `wait`, without counting a retry.
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

/// Selects sagas whose compensation is not complete; `None` does not restrict.
#[derive(Debug, Clone)]
pub struct CompensationFilter {
    pub status: Status,
    /// A service whose receipt is missing.
    pub due_from: Option<String>,
    pub failed_at_step: Option<String>,
    /// Only sagas that began at least this many seconds ago.
    pub older_than_seconds: Option<f64>,
}

/// The number of selected sagas, and the ids of the oldest of them.
pub async fn uncompensated(
    pool: &PgPool,
    which: &CompensationFilter,
    limit: i64,
) -> Result<(i64, Vec<Uuid>), sqlx::Error> {
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
