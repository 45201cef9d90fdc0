//! A saga as a table of steps.

use std::{marker::PhantomData, time::Duration};

use crate::{
    Event, EventType, Service,
    state::{IllegalTransition, SagaState, Transition},
};

/// What triggers a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request of a client.
    Http,
    /// An event of another step; each publisher of the event has a stream of its own.
    Event(EventType),
    /// The saga's deadline has passed, by the clock of the database.
    Deadline,
    /// A command of the saga's coordinator. Where steps have this trigger, none emits an event: the saga is *orchestrated*.
    Command,
}

/// What a step means for the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Can be undone, by the steps of these names.
    Compensatable { by: &'static [&'static str] },
    /// The point of no return for failures; completes the saga. Afterwards no refusal and no deadline compensates it. A client
    /// can, by a cancellation on [`Trigger::Http`], until a numbered step after the pivot is done.
    Pivot,
    /// Cannot be refused, only retried until it is done. A completed saga owes the retriable steps that the pivot triggers.
    Retriable,
    /// Cannot be refused either, and starts the compensation: emits the event that triggers the compensation steps.
    Cancellation,
    /// Undoes an earlier step, and always publishes its receipt, also when there was nothing to undo.
    Compensation,
    /// Maintains a read-only view; not part of any saga.
    Projection,
}

impl Kind {
    /// Whether a step of this kind may make this transition; every step may leave the state unchanged.
    pub fn allows(self, transition: Transition) -> bool {
        match transition {
            Transition::Stay => true,
            Transition::Advance { .. } => matches!(self, Kind::Compensatable { .. }),
            Transition::Complete { .. } => self == Kind::Pivot,
            Transition::TimeOut | Transition::Fulfil { .. } => self == Kind::Retriable,
            Transition::Receipt { .. } => self == Kind::Compensation,
            Transition::Compensate { .. } | Transition::RetryCompensation | Transition::GiveUp | Transition::Resume => {
                self == Kind::Cancellation
            }
        }
    }
}

/// How often a failing delivery is tried before it becomes a dead letter, and the waits between the attempts
/// (exponential backoff with full jitter).
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
    /// is uniformly distributed from zero to this bound.
    pub fn bound(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.multiplier.powi(exponent);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max)
    }
}

/// When a step's circuit breaker opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaker {
    /// The number of most recent calls that are counted.
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
    /// Its position in the forward sequence; a compensation has the number of the step that it undoes. A retriable step with a
    /// number follows the pivot, and a saga that has taken it cannot be compensated any more; one without (0) is no part of the
    /// forward sequence.
    pub number: u8,
    pub name: &'static str,
    /// The service that takes the step; `None`: any service, the first that detects the trigger.
    pub service: Option<Service>,
    pub on: Trigger,
    /// The events that it may publish. Publishing any other is an error at run time.
    pub emits: &'static [EventType],
    pub kind: Kind,
    pub retry: Retry,
    pub breaker: Breaker,
    /// The time limit of one run of the step; a run that exceeds it is rolled back and retried.
    pub time_limit: Duration,
}

impl Step {
    /// Enough for a batch whose every call to another system is retried until its own time limit.
    pub const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// A step that a request of a client triggers. For one that an event triggers there is [`StepOn::new`].
    pub const fn on_request(
        number: u8,
        name: &'static str,
        service: Service,
        emits: &'static [EventType],
        kind: Kind,
    ) -> Self {
        Step::new(number, name, Some(service), Trigger::Http, emits, kind)
    }

    /// A step that a deadline triggers, of the saga or of its compensation. Any service takes it, unless [`Step::by`] names one.
    pub const fn on_deadline(name: &'static str, emits: &'static [EventType], kind: Kind) -> Self {
        Step::new(0, name, None, Trigger::Deadline, emits, kind)
    }

    /// Only this service takes the step.
    pub const fn by(mut self, service: Service) -> Self {
        self.service = Some(service);
        self
    }

    /// A step of an orchestrated saga, which its coordinator has `service` take.
    pub const fn on_command(number: u8, name: &'static str, service: Service, kind: Kind) -> Self {
        Step::new(number, name, Some(service), Trigger::Command, &[], kind)
    }

    /// How long one run of the step may take: of a command, from its first attempt until its last one's answer.
    pub const fn within(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// How often it is tried.
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// When its calls are not admitted.
    pub const fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = breaker;
        self
    }

    pub(crate) const fn new(
        number: u8,
        name: &'static str,
        service: Option<Service>,
        on: Trigger,
        emits: &'static [EventType],
        kind: Kind,
    ) -> Self {
        let (retry, breaker, time_limit) = (Retry::DEFAULT, Breaker::DEFAULT, Step::TIME_LIMIT);
        Step { number, name, service, on, emits, kind, retry, breaker, time_limit }
    }

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

    /// Whether the step is part of the compensation: it undoes a step, or starts the compensation.
    pub fn is_compensating(&self) -> bool {
        matches!(self.kind, Kind::Compensation | Kind::Cancellation)
    }

    /// Whether a saga's `failed_at_step` can be this step: it can refuse, detects the deadline, or is a client's cancellation.
    pub fn can_fail_saga(&self) -> bool {
        let refuses = self.emits.iter().any(|event| event.refusal);
        let on_request = self.on == Trigger::Http && self.kind == Kind::Cancellation;
        refuses || on_request || (self.on == Trigger::Deadline && self.service.is_none())
    }

    /// The event this step consumes, if any.
    pub fn consumes(&self) -> Option<EventType> {
        match self.on {
            Trigger::Event(event) => Some(event),
            Trigger::Http | Trigger::Deadline | Trigger::Command => None,
        }
    }
}

/// A durable consumer: one per step and publisher of the step's trigger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Consumer {
    pub step: &'static Step,
    /// The service that takes the step.
    pub service: Service,
    pub publisher: Service,
}

/// All durable consumers that the steps need.
pub fn consumers(steps: impl IntoIterator<Item = &'static Step>) -> Vec<Consumer> {
    let mut all = Vec::new();
    for step in steps {
        let (Some(service), Some(event)) = (step.service, step.consumes()) else { continue };
        all.extend(event.publishers.iter().map(|publisher| Consumer { step, service, publisher: *publisher }));
    }
    all
}

/// A step that the event `E` triggers: a handler for another event does not compile.
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
        let step = Step::new(number, name, Some(service), Trigger::Event(E::TYPE), emits, kind);
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

/// How long a compensation may take before it is retried, and how often it is retried.
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
    /// From the start of the saga until it times out.
    pub deadline: Duration,
    pub compensation: CompensationPolicy,
    /// The events that no step consumes: those that end the saga, and the receipts of its compensation.
    pub terminal: &'static [EventType],
}

impl SagaDefinition {
    /// The number of forward steps: as many as a completed saga has.
    pub fn total_steps(&self) -> u8 {
        let forward = |s: &&&Step| match s.kind {
            Kind::Compensatable { .. } | Kind::Pivot => true,
            Kind::Retriable => s.number > 0,
            Kind::Cancellation | Kind::Compensation | Kind::Projection => false,
        };
        u8::try_from(self.steps.iter().filter(forward).count()).unwrap_or(u8::MAX)
    }

    /// Whether a coordinator has the steps taken, by commands instead of events.
    pub fn is_orchestrated(&self) -> bool {
        self.steps.iter().any(|step| step.on == Trigger::Command)
    }

    /// Whether the step can start the compensation: it emits an event that triggers compensation steps.
    pub fn starts_compensation(&self, step: &Step) -> bool {
        let mut triggers = self.steps.iter().filter(|s| s.is_compensation()).filter_map(|s| s.consumes());
        triggers.any(|event| step.emits.contains(&event))
    }

    /// The services that owe a receipt once the saga is compensating.
    pub fn participants(&self) -> impl Iterator<Item = Service> + '_ {
        self.steps.iter().filter(|s| s.is_compensation()).filter_map(|s| s.service)
    }

    /// The retriable steps that the pivot triggers, directly or through another of them: a completed saga owes them.
    pub fn after_pivot(&self) -> Vec<&'static Step> {
        let mut owed: Vec<&'static Step> = Vec::new();
        loop {
            let is_emitted = |event: &EventType| {
                let emits = |s: &&&Step| s.kind == Kind::Pivot || owed.iter().any(|o| o.name == s.name);
                self.steps.iter().filter(emits).any(|s| s.emits.contains(event))
            };
            let triggered =
                |s: &&'static Step| s.kind == Kind::Retriable && s.consumes().as_ref().is_some_and(is_emitted);
            let more: Vec<_> = self.steps.iter().copied().filter(triggered).filter(|s| !owed.contains(s)).collect();
            if more.is_empty() {
                return owed;
            }
            owed.extend(more);
        }
    }

    pub fn is_after_pivot(&self, step: &Step) -> bool {
        step.kind == Kind::Retriable && self.after_pivot().iter().any(|owed| owed.name == step.name)
    }

    /// The state after `transition`, or why it is not legal.
    pub fn apply(&self, state: &SagaState, transition: Transition) -> Result<SagaState, IllegalTransition> {
        match transition {
            Transition::Complete { .. } => {
                state.apply(transition, self.after_pivot().into_iter().filter_map(|step| step.service))
            }
            _ => state.apply(transition, self.participants()),
        }
    }
}
