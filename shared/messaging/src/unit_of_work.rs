//! One transaction: inbox claims, effects, saga steps and outbox rows commit together or not at all. No other code publishes
//! events.

mod claimed;
mod transactions;

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use faults::{Guard, Subject};
use opentelemetry::{KeyValue, trace::SpanKind};
use saga::{Event, Service, Step};
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use self::transactions::Origin;
use crate::{
    Context, FaultPoint, Metrics, Span, StepError, TraceContext,
    batch::Effect,
    direct,
    dry_run::Trial,
    envelope::StoredHeaders,
    outbox::{self, OutboxRow},
    replication,
    response_timeout::ResponseWatch,
};

pub use self::{claimed::ClaimedWork, transactions::Outbox};

/// A transaction that can publish.
#[derive(Debug)]
pub struct UnitOfWork {
    transaction: Transaction<'static, Postgres>,
    /// Measures how long the server has not responded.
    response_watch: ResponseWatch,
    origin: Arc<Origin>,
    trial: Option<Arc<Trial>>,
    outgoing: Vec<OutboxRow>,
    /// The effect of each causing event that was answered.
    answers: HashMap<Uuid, Effect>,
    /// The scope that armed faults are matched against.
    subject: Subject,
    begun: Instant,
    /// The transaction's span in each sampled trace that it publishes in, with the parent of the span.
    spans: Vec<(TraceContext, Span)>,
    counts: Counts,
}

/// Metric updates to apply after the commit.
#[derive(Default)]
struct Counts(Vec<Count>);

type Count = Box<dyn FnOnce(&Metrics) + Send>;

impl Counts {
    fn add_up(self, metrics: &Metrics) {
        self.0.into_iter().for_each(|count| count(metrics));
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} counts", self.0.len())
    }
}

/// Why an event was not accepted for publishing. Each is a defect of the program, not of its input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    #[error("{step} does not emit {event}; the saga's step table lists the events it emits")]
    NotEmitted { step: &'static str, event: &'static str },
    #[error("{event} is not declared as published by {service}")]
    NotPublisher { event: &'static str, service: Service },
    #[error("{event} is a side event and cannot be published in a saga")]
    OfASaga { event: &'static str },
    #[error("{event} cannot be encoded as JSON")]
    Encode { event: &'static str, source: serde_json::Error },
}

impl From<PublishError> for StepError {
    fn from(error: PublishError) -> Self {
        StepError::failed(error)
    }
}

impl UnitOfWork {
    /// The connection for one statement: call it again for each. The step fails with [`StepError::Unavailable`] when 15 s pass
    /// between two calls of `conn`, `commit` or `rollback`.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.response_watch.expect_response();
        &mut self.transaction
    }

    /// Publishes `event` if and when this unit of work commits. `sequence` is its number among the events of its aggregate (1, 2,
    /// ...), counted under the aggregate's row lock; audits use it, and nothing is ordered by it. Returns the event's id.
    ///
    /// # Errors
    /// When the step does not list the event, or the event's declaration does not list this service.
    pub fn publish<E: Event>(
        &mut self,
        step: &Step,
        context: &Context,
        sequence: i64,
        event: &E,
    ) -> Result<Uuid, PublishError> {
        if !step.emits.contains(&E::TYPE) {
            return Err(PublishError::NotEmitted { step: step.name, event: E::TYPE.name });
        }
        self.publish_unchecked(step, context, sequence, event)
    }

    /// Publishes a fact about the service's own data, which belongs to no saga. `sequence` as in [`publish`](Self::publish).
    pub fn publish_side_event<E: Event>(
        &mut self,
        context: &Context,
        sequence: i64,
        event: &E,
    ) -> Result<Uuid, PublishError> {
        if context.saga_id().is_some() {
            return Err(PublishError::OfASaga { event: E::TYPE.name });
        }
        self.publish_unchecked(&outbox::NO_STEP, context, sequence, event)
    }

    fn publish_unchecked<E: Event>(
        &mut self,
        step: &Step,
        context: &Context,
        sequence: i64,
        event: &E,
    ) -> Result<Uuid, PublishError> {
        let service = self.origin.service;
        if !E::TYPE.publishers.contains(&service) {
            return Err(PublishError::NotPublisher { event: E::TYPE.name, service });
        }
        let encode = |source| PublishError::Encode { event: E::TYPE.name, source };
        let event_id = Uuid::now_v7();
        if let Some(cause) = context.causation_id {
            self.answers.insert(cause, if E::TYPE.refusal { Effect::Refused } else { Effect::Applied });
        }
        if self.subject == Subject::default() && self.origin.bus.faults.is_armed() {
            self.subject = fault_subject(context);
        }
        let trace = self.trace(context);
        let headers = StoredHeaders::new(service, step, context, trace);
        self.outgoing.push(OutboxRow {
            event_id,
            aggregate_type: E::TYPE.aggregate,
            aggregate_id: event.aggregate_id(),
            aggregate_sequence: sequence,
            event_type: E::TYPE.wire_name(),
            subject: E::TYPE.subject(service),
            headers: serde_json::to_string(&headers).map_err(encode)?,
            payload: serde_json::to_string(event).map_err(encode)?,
            saga_id: context.saga_id(),
        });
        Ok(event_id)
    }

    /// What faults with a scope are compared with, for work that neither claims nor publishes an event.
    pub fn concerns(&mut self, context: &Context, step: &Step) {
        if self.origin.bus.faults.is_armed() {
            self.subject = Subject { step: Some(step.name), ..fault_subject(context) };
        }
    }

    /// Updates metrics if and when this unit of work is committed. A dry run updates none.
    pub fn after_commit(&mut self, count: impl FnOnce(&Metrics) + Send + 'static) {
        self.counts.0.push(Box::new(count));
    }

    /// Records why the current state makes the event a no-op. Only a dry run keeps the reason.
    pub fn refused_by_state(&self, reason: &str) {
        if let Some(trial) = &self.trial {
            trial.refused_by_state(reason);
        }
    }

    /// The parent of a publication's span: the transaction's span if the trace is sampled.
    fn trace(&mut self, context: &Context) -> TraceContext {
        let parent = context.trace;
        if let Some((_, span)) = self.spans.iter().find(|(known, _)| *known == parent) {
            return span.context();
        }
        let facts = vec![
            KeyValue::new("db.system.name", "postgresql"),
            KeyValue::new("db.namespace", self.origin.service.0),
            KeyValue::new("db.operation.name", "TRANSACTION"),
        ];
        match Span::started_before(self.begun.elapsed(), SpanKind::Client, "TRANSACTION", parent, facts) {
            Some(span) => {
                let trace = span.context();
                self.spans.push((parent, span));
                trace
            }
            None => parent,
        }
    }

    /// Rolls back and releases all locks now; dropping the unit of work does so some time later.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        self.transaction.rollback().await
    }

    /// Commits work that has only read. Where there is a synchronous standby, it has what was read: only then may a request that
    /// is repeated be answered as it was the first time. It passes no fault point.
    pub async fn commit_read(mut self) -> Result<(), sqlx::Error> {
        replication::barrier(self.conn()).await?;
        self.commit_intent().await
    }

    /// Commits work that answers no event and publishes none, such as the intent to call another system. It passes no fault
    /// point, because everything that follows can be repeated.
    pub async fn commit_intent(self) -> Result<(), sqlx::Error> {
        if !self.outgoing.is_empty() {
            return self.commit().await;
        }
        if let Some(trial) = self.trial {
            trial.keep(self.transaction, std::iter::empty());
            return Ok(());
        }
        self.response_watch.expect_response();
        self.transaction.commit().await?;
        self.counts.add_up(&self.origin.metrics);
        Ok(())
    }

    /// Writes the outbox rows, commits, and wakes the relay. Where there is a synchronous standby, it then has what this unit of
    /// work has read and written.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        let publishes = !self.outgoing.is_empty();
        let Origin { committed, bus, metrics, .. } = &*self.origin;
        let by_outbox = !bus.faults.without(Guard::Outbox);
        self.response_watch.expect_response();
        match publishes && by_outbox {
            true => outbox::append(&mut self.transaction, &self.outgoing).await?,
            // It may have written nothing: all of its events may be duplicates.
            false => replication::barrier(&mut self.transaction).await?,
        }
        if let Some(trial) = self.trial {
            trial.keep(self.transaction, self.outgoing.into_iter().map(|row| row.event_type));
            return Ok(());
        }
        let subject = self.subject;
        self.response_watch.idle();
        let _ = bus.faults.at(FaultPoint::BeforeCommit, || subject.clone()).await.map_err(injected)?;
        self.response_watch.expect_response();
        self.transaction.commit().await?;
        drop(self.response_watch);
        if by_outbox {
            metrics.outbox_written.inc_by(self.outgoing.len() as u64);
        }
        self.counts.add_up(metrics);
        let _ = bus.faults.at(FaultPoint::AfterCommitBeforePublish, || subject).await.map_err(injected)?;
        if publishes && by_outbox {
            committed.notify_one();
        } else if publishes {
            direct::publish(bus, self.outgoing).await;
        }
        Ok(())
    }
}

/// To the caller an injected fault looks like a broken connection: the outcome is unknown.
fn injected(fault: faults::Injected) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(fault))
}

/// The scope of faults that may hit the work on an event, as far as its context names it.
fn fault_subject(context: &Context) -> Subject {
    Subject::from_baggage(context.saga_id(), context.baggage.as_deref().unwrap_or_default())
}
