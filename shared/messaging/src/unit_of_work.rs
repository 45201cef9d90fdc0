//! One transaction: inbox claims, effects, saga steps and outbox rows commit together or not at all.
//! There is no other way to publish.

use std::{
    collections::HashSet,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use faults::{FaultPoint, Faults};
use saga::{Event, Service, Step};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::{
    Context, Metadata, StepError,
    envelope::StoredHeaders,
    error::Severity,
    inbox,
    outbox::{self, OutboxRow},
    wake::Wake,
};

/// Where a service's transactions begin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    pool: PgPool,
    service: Service,
    wake: Arc<Wake>,
    faults: Faults,
}

impl Outbox {
    pub fn new(pool: PgPool, service: Service, wake: Arc<Wake>, faults: Faults) -> Self {
        Outbox { pool, service, wake, faults }
    }

    /// The same outbox, its transactions on the connections of another pool.
    pub fn on(&self, pool: PgPool) -> Self {
        Outbox { pool, ..self.clone() }
    }

    pub fn service(&self) -> Service {
        self.service
    }

    /// Begins a unit of work that no event caused.
    pub async fn begin(&self) -> Result<UnitOfWork, sqlx::Error> {
        let transaction = self.pool.begin().await?;
        Ok(UnitOfWork { transaction, origin: self.clone(), outgoing: Vec::new() })
    }

    /// Begins the unit of work of a batch: claims the inbox for all of it. What the consumer has had
    /// before is left out of the returned deliveries, and changes nothing.
    pub async fn claim<E>(&self, batch: Batch<E>) -> Result<(ClaimedWork, Vec<Delivery<E>>), StepError> {
        let mut work = self.begin().await?;
        let claimed = inbox::claim(work.conn(), &batch.step.consumer(), &batch.event_ids()).await?;
        let covered = batch.event_ids();
        let duplicates = covered.len() - claimed.len();
        let mut fresh = claimed;
        // Removing from the set leaves out the repeats within one batch, too.
        let deliveries = batch.deliveries.into_iter().filter(|d| fresh.remove(&d.meta.event_id)).collect();
        Ok((ClaimedWork { work, covered, duplicates }, deliveries))
    }
}

/// Events of one type for one step, and the step.
#[derive(Debug)]
pub struct Batch<E> {
    step: &'static Step,
    deliveries: Vec<Delivery<E>>,
}

/// One event as it was delivered.
#[derive(Debug, Clone)]
pub struct Delivery<E> {
    pub event: E,
    pub meta: Metadata,
}

impl<E> Batch<E> {
    pub fn new(step: &'static Step, deliveries: Vec<Delivery<E>>) -> Self {
        Batch { step, deliveries }
    }

    pub fn into_deliveries(self) -> Vec<Delivery<E>> {
        self.deliveries
    }

    fn event_ids(&self) -> Vec<Uuid> {
        self.deliveries.iter().map(|d| d.meta.event_id).collect()
    }
}

/// A transaction that can publish.
#[derive(Debug)]
pub struct UnitOfWork {
    transaction: Transaction<'static, Postgres>,
    origin: Outbox,
    outgoing: Vec<OutboxRow>,
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
        self.outgoing.push(OutboxRow {
            event_id,
            aggregate_type: E::TYPE.aggregate,
            aggregate_id: event.aggregate_id(),
            aggregate_sequence: sequence,
            event_type: E::TYPE.wire_name(),
            subject: E::TYPE.subject(self.origin.service),
            headers: serde_json::to_string(&StoredHeaders::new(self.origin.service, step, context)).map_err(encode)?,
            payload: serde_json::to_string(event).map_err(encode)?,
            saga_id: context.saga_id(),
        });
        Ok(event_id)
    }

    /// Gives up all that was done, and its locks, now; dropping the unit of work does so some time later.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        self.transaction.rollback().await
    }

    /// Writes the outbox rows, commits, and wakes the relay.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        let publishes = !self.outgoing.is_empty();
        if publishes {
            outbox::append(&mut self.transaction, &self.outgoing).await?;
        }
        let Outbox { faults, wake, .. } = self.origin;
        faults.pass(FaultPoint::BeforeCommit).await.map_err(injected)?;
        self.transaction.commit().await?;
        faults.pass(FaultPoint::AfterCommitBeforePublish).await.map_err(injected)?;
        if publishes {
            wake.committed();
        }
        Ok(())
    }
}

/// To the caller an injected fault looks as a broken connection does: the outcome is unknown.
fn injected(fault: faults::Injected) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(fault))
}

/// The unit of work of a batch whose inbox is claimed. Only committing it makes a [`Committed`].
#[derive(Debug)]
pub struct ClaimedWork {
    work: UnitOfWork,
    covered: Vec<Uuid>,
    duplicates: usize,
}

impl ClaimedWork {
    pub async fn commit(self) -> Result<Committed, StepError> {
        self.work.commit().await?;
        Ok(Committed { covered: self.covered.into_iter().collect(), duplicates: self.duplicates, deferred: Vec::new() })
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

/// Proof that the effects of these events are committed (or were, before): they may be acknowledged.
/// Whatever of a batch it does not cover will be delivered again.
#[derive(Debug, Default)]
pub struct Committed {
    pub(crate) covered: HashSet<Uuid>,
    pub(crate) duplicates: usize,
    pub(crate) deferred: Vec<(Uuid, StepError)>,
}

impl Committed {
    /// Nothing is committed yet; for steps that commit a batch in parts.
    pub fn nothing() -> Self {
        Committed::default()
    }

    pub fn and(mut self, other: Committed) -> Self {
        self.covered.extend(other.covered);
        self.duplicates += other.duplicates;
        self.deferred.extend(other.deferred);
        self
    }

    /// This one event could not be applied; the others are not held up by it.
    pub fn defer(&mut self, event_id: Uuid, error: StepError) {
        self.deferred.push((event_id, error));
    }
}

/// Runs `work` again when it lost a race for locks (deadlock, lock timeout), a few times.
pub async fn retry_contended<T, E, F>(mut work: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: Contention,
{
    const ATTEMPTS: u32 = 5;
    for attempt in 1..ATTEMPTS {
        match work().await {
            Err(error) if error.is_contended() => {
                let limit = 5 * u64::from(attempt);
                tokio::time::sleep(std::time::Duration::from_millis(rand::random_range(0..=limit))).await;
            }
            other => return other,
        }
    }
    work().await
}

/// An error that can tell whether it was only a lost race.
pub trait Contention {
    fn is_contended(&self) -> bool;
}

impl Contention for StepError {
    fn is_contended(&self) -> bool {
        matches!(self, StepError::Contended(_))
    }
}

impl Contention for sqlx::Error {
    fn is_contended(&self) -> bool {
        Severity::of(self) == Severity::Contended
    }
}
