//! The timeout detector, which runs in every service: marks sagas whose deadline has passed, journals it and
//! publishes the event, in one transaction. It skips a saga that another transaction has locked:
//! either that one ends the saga, or the next round finds it still due. Where it may not compensate by itself, it only logs them.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use messaging::{Context, FaultPoint, Metrics, Outbox, SagaRef, StepError, Subject, periodic::every, retry_contended};
use saga::{Event, Expired, SagaDefinition, Step};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{StepTransaction, compensation::initial_trace, set_back};

/// A saga whose deadline has passed.
#[derive(Debug, Clone)]
pub struct DueSaga {
    pub saga_id: Uuid,
    pub business_key: Uuid,
    pub deadline: OffsetDateTime,
    pub current_step: i16,
    correlation_id: String,
    trace_id: String,
    last_event_id: Uuid,
    baggage: Option<String>,
    traceparent: Option<String>,
    version: i32,
    started_at: OffsetDateTime,
    elapsed_ms: i64,
    last_event_type: Option<String>,
    detected_by: String,
}

impl DueSaga {
    /// The context of timing it out.
    pub(crate) fn context(&self, definition: &SagaDefinition) -> Context {
        Context {
            saga: Some(SagaRef { saga_id: self.saga_id, saga_type: definition.saga_type.to_owned() }),
            correlation_id: self.correlation_id.clone(),
            causation_id: Some(self.last_event_id),
            trace: initial_trace(self.traceparent.as_deref(), &self.trace_id),
            baggage: self.baggage.as_deref().map(Into::into),
        }
    }

    /// The facts for the event's body.
    pub fn expired(&self) -> Expired {
        Expired {
            saga_id: self.saga_id,
            business_key: self.business_key,
            deadline: self.deadline,
            current_step: u8::try_from(self.current_step).unwrap_or(u8::MAX),
            started_at: self.started_at,
            elapsed_ms: self.elapsed_ms,
            last_event_type: self.last_event_type.clone(),
            detected_by: self.detected_by.clone(),
        }
    }

    pub(crate) fn next_version(&self) -> i64 {
        i64::from(self.version) + 1
    }
}

/// The timeout detector and its settings.
#[derive(Clone)]
pub struct Detector<E> {
    pub outbox: Outbox,
    pub definition: &'static SagaDefinition,
    pub step: &'static Step,
    pub event: fn(&DueSaga) -> E,
    pub every: Duration,
    pub batch: i64,
    /// Otherwise sagas whose deadline has passed are logged only, until someone calls [`Detector::check`].
    pub auto_compensate: bool,
    pub metrics: Metrics,
}

impl<E: Event> Detector<E> {
    /// Detects until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        self.metrics.timeout_detector_running.set(1);
        let known = Mutex::new(HashSet::new());
        every(self.every, &stop, || async {
            let began = Instant::now();
            let checked = async {
                self.count_from_now().await?;
                match self.auto_compensate {
                    true => self.check(&stop).await.map(drop),
                    false => Ok(self.log_overdue(&known).await?),
                }
            };
            if let Err(error) = checked.await {
                tracing::warn!(%error, "timeout detection failed; it is retried in the next round");
            }
            self.metrics.timeout_check_duration.observe(began.elapsed().as_secs_f64());
        })
        .await;
        self.metrics.timeout_detector_running.set(0);
    }

    /// Times out all sagas whose deadline has passed; returns how many.
    pub async fn check(&self, stop: &CancellationToken) -> Result<i64, StepError> {
        let mut timed_out = 0;
        while !stop.is_cancelled() {
            let found = retry_contended(|| self.detect_timeout()).await?;
            timed_out += found;
            if found < self.batch {
                break;
            }
        }
        Ok(timed_out)
    }

    async fn count_from_now(&self) -> Result<(), StepError> {
        let mut work = self.outbox.begin().await?;
        set_back::count_from_now(work.conn(), self.definition).await?;
        Ok(work.commit_intent().await?)
    }

    /// Logs the sagas whose deadline has passed, each once.
    async fn log_overdue(&self, known: &Mutex<HashSet<Uuid>>) -> Result<(), sqlx::Error> {
        let mut work = self.outbox.begin().await?;
        let due = sqlx::query!(
            "select saga_id, business_key, deadline
            from saga.saga_instance
            where saga_type = $1 and status in ('STARTED', 'IN_PROGRESS') and deadline < now()
            order by deadline
            limit $2",
            self.definition.saga_type,
            self.batch,
        )
        .fetch_all(work.conn())
        .await?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        for saga in due.iter().filter(|saga| !known.contains(&saga.saga_id)) {
            let (saga_id, business_key, deadline) = (saga.saga_id, saga.business_key, saga.deadline);
            tracing::warn!(%saga_id, %business_key, %deadline, "the saga's deadline has passed; operator action required");
        }
        *known = due.into_iter().map(|saga| saga.saga_id).collect();
        Ok(())
    }

    /// One batch; returns how many sagas timed out.
    pub async fn detect_timeout(&self) -> Result<i64, StepError> {
        let mut tx = StepTransaction::begin(&self.outbox, self.definition, self.step).await?;
        let due = sqlx::query_as!(
            DueSaga,
            r#"select saga_id, business_key, deadline, current_step, correlation_id, trace_id, last_event_id, version,
                baggage, traceparent, started_at, $3::text as "detected_by!",
                (extract(epoch from now() - started_at) * 1000)::bigint as "elapsed_ms!",
                (
                    select j.event_type
                    from saga.saga_step j
                    where j.saga_id = s.saga_id and j.event_id = s.last_event_id
                    limit 1
                ) as last_event_type
            from saga.saga_instance s
            where saga_type = $1 and status in ('STARTED', 'IN_PROGRESS') and deadline < now()
            order by deadline
            limit $2
            for update skip locked"#,
            self.definition.saga_type,
            self.batch,
            self.outbox.service().0,
        )
        .fetch_all(tx.conn())
        .await?;
        if due.is_empty() {
            return Ok(0);
        }
        let mut tx = tx.lock(due).await?;
        let due = tx.causes();
        for saga in due.iter() {
            tx.time_out(saga, &(self.event)(saga))?;
        }
        tx.commit().await?;
        for saga in due.iter() {
            let subject = || Subject::from_baggage(Some(saga.saga_id), saga.baggage.as_deref().unwrap_or_default());
            let passed = self.outbox.faults().at(FaultPoint::BetweenTimeoutAndCompensation, subject).await;
            let _ = passed.map_err(StepError::unavailable)?;
        }
        tracing::info!(timed_out = due.len(), "sagas timed out");
        Ok(i64::try_from(due.len()).unwrap_or(i64::MAX))
    }
}
