//! The input and the result of a step.

use std::{collections::HashMap, sync::Arc};

use saga::Step;
use uuid::Uuid;

use crate::{Metadata, StepError, dry_run::Trial};

/// Events of one type for one step.
#[derive(Debug)]
pub struct Batch<E> {
    pub(crate) step: &'static Step,
    pub(crate) deliveries: Vec<Delivery<E>>,
    /// The dry run that it belongs to, if any.
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

/// Proof that the effects of these events are committed, now or before: they may be acknowledged. Events of the batch that it
/// does not cover are redelivered.
#[derive(Debug)]
pub struct Committed {
    pub(crate) covered: HashMap<Uuid, Effect>,
    pub(crate) deferred: Vec<(Uuid, StepError)>,
}

/// The result of a step.
pub type StepResult = Result<Committed, StepError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Applied,
    /// Answered with a business refusal, which says nothing about the systems that the step calls.
    Refused,
    /// It came too late and changed nothing; no system was called.
    Skipped,
    /// Applied by an earlier delivery.
    Duplicate,
}

impl Committed {
    /// The start value for steps that commit a batch in parts.
    pub fn nothing() -> Self {
        Committed { covered: HashMap::new(), deferred: Vec::new() }
    }

    pub fn and(mut self, other: Committed) -> Self {
        self.covered.extend(other.covered);
        self.deferred.extend(other.deferred);
        self
    }

    /// Records that this event could not be applied, while others of the batch are.
    pub fn defer(&mut self, event_id: Uuid, error: StepError) {
        self.deferred.push((event_id, error));
    }
}
