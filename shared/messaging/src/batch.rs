//! What a step is given, and what it gives back.

use std::{collections::HashMap, sync::Arc};

use saga::Step;
use uuid::Uuid;

use crate::{Metadata, StepError, dry_run::Trial};

/// Events of one type for one step, and the step.
#[derive(Debug)]
pub struct Batch<E> {
    pub(crate) step: &'static Step,
    pub(crate) deliveries: Vec<Delivery<E>>,
    /// The dry run that it belongs to.
    pub(crate) trial: Option<Arc<Trial>>,
}

/// One event as it was delivered.
#[derive(Debug, Clone)]
pub struct Delivery<E> {
    pub event: E,
    pub meta: Metadata,
}

impl<E> Batch<E> {
    /// The step that it was delivered to.
    pub fn step(&self) -> &'static Step {
        self.step
    }

    pub fn new(step: &'static Step, deliveries: Vec<Delivery<E>>) -> Self {
        Batch { step, deliveries, trial: None }
    }

    pub fn into_deliveries(self) -> Vec<Delivery<E>> {
        self.deliveries
    }

    pub(crate) fn event_ids(&self) -> Vec<Uuid> {
        self.deliveries.iter().map(|d| d.meta.event_id).collect()
    }
}

/// Proof that the effects of these events are committed (or were, before): they may be acknowledged.
/// Whatever of a batch it does not cover will be delivered again.
#[derive(Debug, Default)]
pub struct Committed {
    pub(crate) covered: HashMap<Uuid, Effect>,
    pub(crate) deferred: Vec<(Uuid, StepError)>,
}

/// What a step comes to.
pub type StepResult = Result<Committed, StepError>;

/// What an event came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Applied,
    /// Answered with a refusal: it says nothing about the systems that the step calls.
    Refused,
    /// It came too late and changed nothing; nobody was called.
    Skipped,
    /// Applied before.
    Duplicate,
}

impl Committed {
    /// Nothing is committed yet; for steps that commit a batch in parts.
    pub fn nothing() -> Self {
        Committed::default()
    }

    pub fn and(mut self, other: Committed) -> Self {
        self.covered.extend(other.covered);
        self.deferred.extend(other.deferred);
        self
    }

    /// This one event could not be applied; the others are not held up by it.
    pub fn defer(&mut self, event_id: Uuid, error: StepError) {
        self.deferred.push((event_id, error));
    }
}
