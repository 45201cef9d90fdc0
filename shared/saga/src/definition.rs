//! A saga as a table of steps.

use std::{marker::PhantomData, time::Duration};

use crate::{
    Event, EventType, Service,
    state::{IllegalTransition, SagaState, Status, Transition},
};

/// What sets a step in motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request of a client.
    Http,
    /// An event of another step; each publisher of the event has a stream of its own.
    Event(EventType),
    /// The saga's deadline has passed (by the database's clock).
    Deadline,
}

/// What a step means for the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Can be undone by the steps of these names.
    Compensatable { by: &'static [&'static str] },
    /// The point of no return; ends the saga.
    Pivot,
    /// Cannot be refused, only repeated until it is done: what the pivot sets in motion, a completed saga owes.
    Retriable,
    /// Likewise, and has the saga undone: emits what sets the compensations in motion.
    Cancellation,
    /// Undoes an earlier step, and always answers, also when there was nothing to undo.
    Compensation,
    /// Keeps a read-only view; no part of any saga.
    Projection,
}

/// How often a failing delivery is tried before it becomes a dead letter, and the waits between
/// (exponential with full jitter).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    pub attempts: u32,
    pub initial: Duration,
    pub multiplier: f64,
    pub max: Duration,
}

impl Retry {
    pub const DEFAULT: Retry =
        Retry { attempts: 3, initial: Duration::from_millis(500), multiplier: 2.0, max: Duration::from_secs(30) };

    /// The upper bound of the wait after the given failed attempt (1 is the first); the wait itself
    /// is drawn evenly from zero to this bound.
    pub fn bound(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.multiplier.powi(exponent);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max)
    }
}

/// When a step's circuit breaker opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaker {
    /// How many of the last calls are looked at.
    pub window: u32,
    pub min_calls: u32,
    /// Opens at this share of failures, 0 to 1.
    pub failure_rate: f64,
    pub open_for: Duration,
    pub half_open_probes: u32,
}

impl Breaker {
    pub const DEFAULT: Breaker =
        Breaker { window: 10, min_calls: 5, failure_rate: 0.5, open_for: Duration::from_secs(10), half_open_probes: 3 };
}

/// One step: a row of the table. Its name is the same everywhere: const, function, durable
/// consumer, breaker, metric label, test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Its place on the way forward; a compensation has the number of what it undoes. A retriable step with a number stands
    /// behind the pivot, and a saga that has taken it cannot turn back; one without stands beside the way.
    pub number: u8,
    pub name: &'static str,
    /// Who takes the step; `None`: whichever service notices first.
    pub service: Option<Service>,
    pub on: Trigger,
    /// What it may publish. Publishing anything else is refused at run time.
    pub emits: &'static [EventType],
    pub kind: Kind,
    pub retry: Retry,
    pub breaker: Breaker,
    /// How long one run of the step may take; what is cut off then is rolled back and tried again.
    pub time_limit: Duration,
}

impl Step {
    /// Enough for a batch whose every call to another system is asked for again until its own limit.
    pub const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// The durable consumer's name, which is also the inbox's key: `inventory-reserve_stock`.
    pub fn consumer(&self) -> String {
        match self.service {
            Some(service) => format!("{service}-{}", self.name),
            None => self.name.to_owned(),
        }
    }

    pub fn is_compensation(&self) -> bool {
        self.kind == Kind::Compensation
    }

    /// Whether the step belongs to the undoing: it undoes something, or has it undone.
    pub fn is_compensating(&self) -> bool {
        matches!(self.kind, Kind::Compensation | Kind::Cancellation)
    }

    /// Whether a saga can turn back here: at a refusal, at its deadline, or at a client's wish.
    pub fn can_turn_back(&self) -> bool {
        let refuses = self.emits.iter().any(|event| event.refusal);
        let wished = self.on == Trigger::Http && self.kind == Kind::Cancellation;
        refuses || wished || (self.on == Trigger::Deadline && self.service.is_none())
    }

    /// The event this step consumes, if any.
    pub fn consumes(&self) -> Option<EventType> {
        match self.on {
            Trigger::Event(event) => Some(event),
            Trigger::Http | Trigger::Deadline => None,
        }
    }
}

/// A step that is set in motion by the event `E`: a handler for another event does not compile.
pub struct StepOn<E> {
    pub step: Step,
    event: PhantomData<fn() -> E>,
}

impl<E: Event> StepOn<E> {
    pub const fn new(
        number: u8,
        name: &'static str,
        service: Service,
        emits: &'static [EventType],
        kind: Kind,
    ) -> Self {
        let step = Step {
            number,
            name,
            service: Some(service),
            on: Trigger::Event(E::TYPE),
            emits,
            kind,
            retry: Retry::DEFAULT,
            breaker: Breaker::DEFAULT,
            time_limit: Step::TIME_LIMIT,
        };
        StepOn { step, event: PhantomData }
    }

    pub const fn retry(mut self, retry: Retry) -> Self {
        self.step.retry = retry;
        self
    }

    pub const fn breaker(mut self, breaker: Breaker) -> Self {
        self.step.breaker = breaker;
        self
    }
}

impl<E> std::ops::Deref for StepOn<E> {
    type Target = Step;

    fn deref(&self) -> &Step {
        &self.step
    }
}

/// How long a compensation may take before it is driven again, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompensationPolicy {
    pub deadline: Duration,
    pub max_attempts: u16,
}

/// A whole saga.
#[derive(Debug, Clone, Copy)]
pub struct SagaDefinition {
    pub saga_type: &'static str,
    pub steps: &'static [&'static Step],
    /// From the start until the timeout detector steps in.
    pub deadline: Duration,
    pub compensation: CompensationPolicy,
    /// What the last receipt of a compensation looks like, and what ends the saga: read by nobody.
    pub terminal: &'static [EventType],
}

impl SagaDefinition {
    /// The steps on the way forward: as many as a completed saga has.
    pub fn total_steps(&self) -> u8 {
        let forward = |s: &&&Step| match s.kind {
            Kind::Compensatable { .. } | Kind::Pivot => true,
            Kind::Retriable => s.number > 0,
            Kind::Cancellation | Kind::Compensation | Kind::Projection => false,
        };
        u8::try_from(self.steps.iter().filter(forward).count()).unwrap_or(u8::MAX)
    }

    /// Whether the step may have the saga undone: it emits what sets compensations in motion.
    pub fn is_undone_by(&self, step: &Step) -> bool {
        let mut undos = self.steps.iter().filter(|s| s.is_compensation()).filter_map(|s| s.consumes());
        undos.any(|event| step.emits.contains(&event))
    }

    /// The services that owe a receipt once the saga compensates.
    pub fn participants(&self) -> impl Iterator<Item = Service> + '_ {
        self.steps.iter().filter(|s| s.is_compensation()).filter_map(|s| s.service)
    }

    /// The retriable steps that the pivot sets in motion, or one of them: a completed saga owes them.
    pub fn behind_pivot(&self) -> Vec<&'static Step> {
        let mut behind: Vec<&'static Step> = Vec::new();
        loop {
            let is_told = |event: &EventType| {
                let tells = |s: &&&Step| s.kind == Kind::Pivot || behind.iter().any(|b| b.name == s.name);
                self.steps.iter().filter(tells).any(|s| s.emits.contains(event))
            };
            let owed = |s: &&'static Step| s.kind == Kind::Retriable && s.consumes().as_ref().is_some_and(is_told);
            let more: Vec<_> = self.steps.iter().copied().filter(owed).filter(|s| !behind.contains(s)).collect();
            if more.is_empty() {
                return behind;
            }
            behind.extend(more);
        }
    }

    pub fn is_behind_pivot(&self, step: &Step) -> bool {
        step.kind == Kind::Retriable && self.behind_pivot().iter().any(|behind| behind.name == step.name)
    }

    /// Whether the saga went on behind its pivot: it cannot turn back any more, whoever wishes it.
    pub fn is_past_pivot(&self, state: &SagaState) -> bool {
        let pivot = self.steps.iter().find(|s| s.kind == Kind::Pivot);
        state.status == Status::Completed && pivot.is_some_and(|pivot| state.current_step > pivot.number)
    }

    /// The state after `transition`, or why it is not legal.
    pub fn apply(&self, state: &SagaState, transition: Transition) -> Result<SagaState, IllegalTransition> {
        match transition {
            Transition::Compensate { .. } if self.is_past_pivot(state) => {
                Err(IllegalTransition { from: state.status, transition })
            }
            Transition::Complete { .. } => {
                state.apply(transition, self.behind_pivot().into_iter().filter_map(|step| step.service))
            }
            _ => state.apply(transition, self.participants()),
        }
    }
}
