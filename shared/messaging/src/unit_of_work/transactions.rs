//! Where transactions begin: without a cause, for a step without an event, or for a batch of deliveries, whose inbox rows are
//! claimed first.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use faults::{Guard, Subject};
use saga::{Service, Step};
use sqlx::PgPool;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{ClaimedWork, Counts, UnitOfWork, fault_subject};
use crate::{Batch, Bus, Delivery, Faults, Metrics, StepError, dry_run::Trial, inbox, response_timeout::ResponseWatch};

/// Where a service's transactions begin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    pub(crate) pool: PgPool,
    pub(crate) origin: Arc<Origin>,
    trial: Option<Arc<Trial>>,
}

/// The service that writes to the outbox, and what its transactions use.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) service: Service,
    /// Wakes this process's relay after a commit; without it the relay finds the rows at its next poll.
    pub(crate) committed: Arc<Notify>,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
}

impl Outbox {
    /// The `search_path` of the pool's connections must be the service's schema.
    pub fn new(pool: PgPool, bus: Bus, metrics: Metrics) -> Self {
        let origin = Origin { service: bus.service, committed: Arc::default(), bus, metrics };
        Outbox { pool, origin: Arc::new(origin), trial: None }
    }

    /// The same outbox on another connection pool.
    pub fn on(&self, pool: PgPool) -> Self {
        Outbox { pool, ..self.clone() }
    }

    /// The outbox to use for the effects of this batch: all units of work of a dry run share one transaction.
    pub fn for_batch<E>(&self, batch: &Batch<E>) -> Self {
        Outbox { trial: batch.trial.clone().or_else(|| self.trial.clone()), ..self.clone() }
    }

    /// Call this right before each call to another system. True in a dry run: it records `what`, and the caller must not make the
    /// call. Only the outbox [of the batch](Self::for_batch) knows that it is a dry run; the one that a handler was composed
    /// with does not.
    #[must_use = "in a dry run no other system may be called"]
    pub fn would_call(&self, what: &'static str) -> bool {
        self.trial.as_ref().map(|trial| trial.would_call(what)).is_some()
    }

    pub fn service(&self) -> Service {
        self.origin.service
    }

    pub fn faults(&self) -> &Faults {
        &self.origin.bus.faults
    }

    /// Begins a unit of work without a causing event.
    pub async fn begin(&self) -> Result<UnitOfWork, sqlx::Error> {
        let response_watch = ResponseWatch::begin();
        let transaction = match self.trial.as_ref().and_then(|trial| trial.resume()) {
            Some(transaction) => transaction,
            None => self.pool.begin().await?,
        };
        Ok(UnitOfWork {
            transaction,
            response_watch,
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

    /// Begins the unit of work of a step that is triggered by a request or a deadline instead of an event.
    pub async fn begin_step(&self, step: &'static Step) -> Result<ClaimedWork, sqlx::Error> {
        Ok(ClaimedWork { work: self.begin().await?, step, covered: Vec::new(), fresh: HashSet::new() })
    }

    /// Begins the unit of work of a batch and claims its inbox rows. The returned deliveries do not include events that the
    /// consumer has processed before.
    pub async fn claim<E>(&self, batch: Batch<E>) -> Result<(ClaimedWork, Vec<Delivery<E>>), StepError> {
        let mut work = self.for_batch(&batch).begin().await?;
        let (step, covered) = (batch.step, batch.event_ids());
        if let Some(first) = batch.deliveries.first()
            && self.faults().is_armed()
        {
            work.subject = fault_subject(&first.meta.published_in).step(step.name);
        }
        if self.faults().without(Guard::Inbox) {
            return Ok((ClaimedWork { work, step, covered, fresh: HashSet::new() }, batch.deliveries));
        }
        let fresh = inbox::claim(work.conn(), &step.consumer(), &covered).await?;
        let mut first = fresh.clone();
        // Removing from the set also drops duplicates within the batch.
        let (deliveries, dropped): (_, Vec<_>) =
            batch.deliveries.into_iter().partition(|d| first.remove(&d.meta.event_id));
        if !dropped.is_empty() {
            let dropped: Vec<Uuid> = dropped.iter().map(|d| d.meta.event_id).collect();
            inbox::count_duplicates(work.conn(), &step.consumer(), &dropped).await?;
        }
        Ok((ClaimedWork { work, step, covered, fresh }, deliveries))
    }
}
