//! One transaction: inbox claims, effects, saga steps and outbox rows commit together or not at all.
//! There is no other way to publish.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Instant,
};

use faults::{Guard, Subject};
use opentelemetry::{KeyValue, trace::SpanKind};
use saga::{Event, Service, Step};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::{
    Batch, Bus, Committed, Context, Delivery, Hooks, Metrics, Point, Span, StepError, TraceContext,
    batch::Effect,
    direct,
    dry_run::Trial,
    envelope::StoredHeaders,
    inbox,
    outbox::{self, OutboxRow},
    silence::Conversation,
    wake::Wake,
};

/// Where a service's transactions begin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    pub(crate) pool: PgPool,
    pub(crate) origin: Arc<Origin>,
    trial: Option<Arc<Trial>>,
}

/// Who writes into the outbox.
#[derive(Debug)]
pub(crate) struct Origin {
    service: Service,
    pub(crate) wake: Arc<Wake>,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
}

impl Outbox {
    /// `pool` is of connections whose `search_path` is the service's schema.
    pub fn new(pool: PgPool, bus: Bus, metrics: Metrics) -> Self {
        let origin = Origin { service: bus.service, wake: Arc::default(), bus, metrics };
        Outbox { pool, origin: Arc::new(origin), trial: None }
    }

    /// The same outbox, its transactions on the connections of another pool.
    pub fn on(&self, pool: PgPool) -> Self {
        Outbox { pool, ..self.clone() }
    }

    /// The same outbox for what this batch sets in motion: a dry run of it goes on in one transaction, to its end.
    pub fn for_batch<E>(&self, batch: &Batch<E>) -> Self {
        Outbox { trial: batch.trial.clone().or_else(|| self.trial.clone()), ..self.clone() }
    }

    /// To be asked right before a call to another system: true in a dry run, which notes `what` and must not call. Only the
    /// outbox [of the batch](Self::for_batch) knows of it; the one that a handler was composed with does not.
    #[must_use = "in a dry run no other system may be called"]
    pub fn would_call(&self, what: &'static str) -> bool {
        self.trial.as_ref().map(|trial| trial.would_call(what)).is_some()
    }

    pub fn service(&self) -> Service {
        self.origin.service
    }

    pub fn hooks(&self) -> &Hooks {
        &self.origin.bus.hooks
    }

    /// Begins a unit of work that no event caused.
    pub async fn begin(&self) -> Result<UnitOfWork, sqlx::Error> {
        let conversation = Conversation::begin();
        let transaction = match self.trial.as_ref().and_then(|trial| trial.go_on()) {
            Some(transaction) => transaction,
            None => self.pool.begin().await?,
        };
        Ok(UnitOfWork {
            transaction,
            conversation,
            origin: Arc::clone(&self.origin),
            trial: self.trial.clone(),
            outgoing: Vec::new(),
            answers: HashMap::new(),
            subject: Subject::default(),
            begun: Instant::now(),
            spans: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Begins the unit of work of a step that no event sets in motion, but a request or a deadline.
    pub async fn begin_step(&self, step: &'static Step) -> Result<ClaimedWork, sqlx::Error> {
        Ok(ClaimedWork { work: self.begin().await?, step, covered: Vec::new(), fresh: HashSet::new() })
    }

    /// Begins the unit of work of a batch: claims the inbox for all of it. What the consumer has had
    /// before is left out of the returned deliveries, and changes nothing.
    pub async fn claim<E>(&self, batch: Batch<E>) -> Result<(ClaimedWork, Vec<Delivery<E>>), StepError> {
        let mut work = self.for_batch(&batch).begin().await?;
        let (step, covered) = (batch.step, batch.event_ids());
        if let Some(first) = batch.deliveries.first()
            && self.hooks().is_armed()
        {
            work.subject = subject(&first.meta.published_in).step(step.name);
        }
        if self.hooks().without(Guard::Inbox) {
            return Ok((ClaimedWork { work, step, covered, fresh: HashSet::new() }, batch.deliveries));
        }
        let fresh = inbox::claim(work.conn(), &step.consumer(), &covered).await?;
        let mut first = fresh.clone();
        // Removing from the set leaves out the repeats within one batch, too.
        let deliveries = batch.deliveries.into_iter().filter(|d| first.remove(&d.meta.event_id)).collect();
        Ok((ClaimedWork { work, step, covered, fresh }, deliveries))
    }
}

/// What a fault may be limited to, as far as an event's context tells it.
pub(crate) fn subject(context: &Context) -> Subject {
    Subject::from_baggage(context.saga_id(), context.baggage.as_deref().unwrap_or_default())
}

/// A transaction that can publish.
#[derive(Debug)]
pub struct UnitOfWork {
    transaction: Transaction<'static, Postgres>,
    /// Until the server answers no more.
    conversation: Conversation,
    origin: Arc<Origin>,
    trial: Option<Arc<Trial>>,
    outgoing: Vec<OutboxRow>,
    /// The events that caused others, and whether each was answered with a refusal.
    answers: HashMap<Uuid, Answer>,
    /// What faults armed in this process may be limited to.
    subject: Subject,
    begun: Instant,
    /// The transaction's span in each sampled trace that it publishes in, and what is above it.
    spans: Vec<(TraceContext, Span)>,
    counts: Counts,
}

/// What is to be counted once the transaction is committed.
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

/// What an event was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Refused,
}

/// Why an event was not accepted for publishing. Each is a defect of the program, not of its input.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("{step} does not emit {event}: its row in the saga's table says what it does")]
    NotEmitted { step: &'static str, event: &'static str },
    #[error("{event} cannot be written as JSON")]
    Encode { event: &'static str, source: serde_json::Error },
}

impl From<PublishError> for StepError {
    fn from(error: PublishError) -> Self {
        StepError::failed(error)
    }
}

impl UnitOfWork {
    pub fn conn(&mut self) -> &mut PgConnection {
        self.conversation.ask();
        &mut self.transaction
    }

    /// Publishes `event` if and when this unit of work commits. `sequence` is the aggregate's own
    /// count of its events, taken under the aggregate's row lock. Returns the event's id.
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

    /// Publishes a fact about the service's own data, which belongs to no saga.
    pub fn publish_side_event<E: Event>(
        &mut self,
        context: &Context,
        sequence: i64,
        event: &E,
    ) -> Result<Uuid, PublishError> {
        self.publish_unchecked(&outbox::NO_STEP, context, sequence, event)
    }

    fn publish_unchecked<E: Event>(
        &mut self,
        step: &Step,
        context: &Context,
        sequence: i64,
        event: &E,
    ) -> Result<Uuid, PublishError> {
        let encode = |source| PublishError::Encode { event: E::TYPE.name, source };
        let event_id = Uuid::now_v7();
        if let Some(cause) = context.causation_id {
            self.answers.insert(cause, if E::TYPE.refusal { Answer::Refused } else { Answer::Done });
        }
        if self.subject == Subject::default() && self.origin.bus.hooks.is_armed() {
            self.subject = subject(context);
        }
        let trace = self.trace(context);
        let headers = StoredHeaders::new(self.origin.service, step, context, trace);
        self.outgoing.push(OutboxRow {
            event_id,
            aggregate_type: E::TYPE.aggregate,
            aggregate_id: event.aggregate_id(),
            aggregate_sequence: sequence,
            event_type: E::TYPE.wire_name(),
            subject: E::TYPE.subject(self.origin.service),
            headers: serde_json::to_string(&headers).map_err(encode)?,
            payload: serde_json::to_string(event).map_err(encode)?,
            saga_id: context.saga_id(),
        });
        Ok(event_id)
    }

    /// Counts something if and when this unit of work is committed; a dry run counts nothing.
    pub fn after_commit(&mut self, count: impl FnOnce(&Metrics) + Send + 'static) {
        self.counts.0.push(Box::new(count));
    }

    /// Says why the event changes nothing: the state it meets is past it. Only a dry run takes note of it.
    pub fn refused_by_state(&self, reason: &str) {
        if let Some(trial) = &self.trial {
            trial.refused_by_state(reason);
        }
    }

    /// What a publication goes on from: the transaction's span, where the trace is sampled.
    fn trace(&mut self, context: &Context) -> TraceContext {
        let above = context.trace;
        if let Some((_, span)) = self.spans.iter().find(|(known, _)| *known == above) {
            return span.context();
        }
        let facts = vec![
            KeyValue::new("db.system.name", "postgresql"),
            KeyValue::new("db.namespace", self.origin.service.0),
            KeyValue::new("db.operation.name", "TRANSACTION"),
        ];
        match Span::started_before(self.begun.elapsed(), SpanKind::Client, "TRANSACTION", above, facts) {
            Some(span) => {
                let trace = span.context();
                self.spans.push((above, span));
                trace
            }
            None => above,
        }
    }

    /// Gives up all that was done, and its locks, now; dropping the unit of work does so some time later.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        self.transaction.rollback().await
    }

    /// Commits what answers no event and publishes none, such as the intent to call another system: no window for
    /// a fault, as everything that follows can be done again.
    pub async fn commit_intent(self) -> Result<(), sqlx::Error> {
        if !self.outgoing.is_empty() {
            return self.commit().await;
        }
        if let Some(trial) = self.trial {
            trial.keep(self.transaction, std::iter::empty());
            return Ok(());
        }
        self.conversation.ask();
        self.transaction.commit().await?;
        self.counts.add_up(&self.origin.metrics);
        Ok(())
    }

    /// Writes the outbox rows, commits, and wakes the relay.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        let publishes = !self.outgoing.is_empty();
        let Origin { wake, bus, metrics, .. } = &*self.origin;
        let by_outbox = !bus.hooks.without(Guard::Outbox);
        if publishes && by_outbox {
            self.conversation.ask();
            outbox::append(&mut self.transaction, &self.outgoing).await?;
        }
        if let Some(trial) = self.trial {
            trial.keep(self.transaction, self.outgoing.into_iter().map(|row| row.event_type));
            return Ok(());
        }
        let subject = self.subject;
        self.conversation.rest();
        let _ = bus.hooks.at(Point::BeforeCommit, || subject.clone()).await.map_err(injected)?;
        self.conversation.ask();
        self.transaction.commit().await?;
        drop(self.conversation);
        if by_outbox {
            metrics.outbox_written.inc_by(self.outgoing.len() as u64);
        }
        self.counts.add_up(metrics);
        let _ = bus.hooks.at(Point::AfterCommitBeforePublish, || subject).await.map_err(injected)?;
        if publishes && by_outbox {
            wake.committed();
        } else if publishes {
            direct::publish(bus, self.outgoing).await;
        }
        Ok(())
    }
}

/// To the caller an injected fault looks as a broken connection does: the outcome is unknown.
fn injected(fault: faults::Injected) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(fault))
}

/// The unit of work of a step: of a batch whose inbox is claimed, or of no event. Only committing it makes a [`Committed`].
#[derive(Debug)]
pub struct ClaimedWork {
    work: UnitOfWork,
    step: &'static Step,
    covered: Vec<Uuid>,
    /// Those of them that the consumer has not had before.
    fresh: HashSet<Uuid>,
}

impl ClaimedWork {
    /// The unit of work alone, of which nothing is to be acknowledged.
    pub fn into_unclaimed(self) -> UnitOfWork {
        self.work
    }

    pub async fn commit(mut self) -> Result<Committed, StepError> {
        let effect = |event_id: &Uuid| match self.work.answers.get(event_id) {
            Some(Answer::Refused) => Effect::Refused,
            Some(Answer::Done) => Effect::Applied,
            None if !self.fresh.contains(event_id) => Effect::Duplicate,
            None if self.step.emits.is_empty() => Effect::Applied,
            None => Effect::Skipped,
        };
        let covered: HashMap<_, _> = self.covered.iter().map(|event_id| (*event_id, effect(event_id))).collect();
        let of = |effect: Effect| covered.values().filter(|e| **e == effect).count();
        let (fresh, refused) = (covered.len() - of(Effect::Duplicate), of(Effect::Refused));
        let (step, deliveries) = (self.step.name, self.covered.len());
        if deliveries > 0 {
            self.work.after_commit(move |metrics| metrics.count_deliveries(step, deliveries, fresh, refused));
        }
        self.work.commit().await?;
        Ok(Committed { covered, deferred: Vec::new() })
    }
}

impl Deref for ClaimedWork {
    type Target = UnitOfWork;

    fn deref(&self) -> &UnitOfWork {
        &self.work
    }
}

impl DerefMut for ClaimedWork {
    fn deref_mut(&mut self) -> &mut UnitOfWork {
        &mut self.work
    }
}
