//! What messaging and the sagas count. Names follow the Prometheus conventions; the registry adds `_total`. What a
//! transaction did is counted after its commit. METRICS.md in the project's root shows all of them.

mod zero;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        exemplar::HistogramWithExemplars,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    pub step: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepOutcome {
    pub step: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepStatusLabel {
    pub step: &'static str,
    pub status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Hop {
    pub step: &'static str,
    pub hop: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SagaLabel {
    pub saga_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SagaStep {
    pub saga_type: &'static str,
    pub step: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SagaReason {
    pub saga_type: &'static str,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SagaOutcome {
    pub saga_type: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LetterAction {
    pub step: String,
    pub action: &'static str,
    pub outcome: &'static str,
}

/// Names the trace of an observation: an exemplar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TraceLabel {
    pub trace_id: String,
}

impl TraceLabel {
    pub fn new(trace_id: impl Into<String>) -> Self {
        TraceLabel { trace_id: trace_id.into() }
    }
}

/// A histogram of seconds per label set, with exemplars.
pub type Timed<L> = Family<L, HistogramWithExemplars<TraceLabel>, fn() -> HistogramWithExemplars<TraceLabel>>;
type Sized<L> = Family<L, Histogram, fn() -> Histogram>;

/// From a millisecond to two minutes; usable as the constructor of a [`Timed`].
pub fn seconds() -> HistogramWithExemplars<TraceLabel> {
    const BOUNDS: [f64; 16] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
    HistogramWithExemplars::new(BOUNDS.into_iter())
}

fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 11))
}

#[derive(Debug, Clone)]
pub struct Metrics {
    pub outbox_written: Counter,
    pub outbox_published: Counter,
    pub outbox_attempts: Family<Outcome, Counter>,
    pub outbox_batch_size: Histogram,
    pub outbox_publish_duration: Histogram,
    pub outbox_age_at_publish: HistogramWithExemplars<TraceLabel>,
    pub outbox_parked: Counter,
    pub outbox_republished: Counter,
    pub relay_active: Gauge,
    pub relay_takeovers: Counter,
    pub broker_silent: Gauge,
    pub inbox_applied: Family<StepLabel, Counter>,
    pub inbox_duplicates: Family<StepLabel, Counter>,
    pub inbox_batch_size: Sized<StepLabel>,
    pub step_duration: Timed<StepLabel>,
    pub hop: Sized<Hop>,
    pub refusals: Family<StepLabel, Counter>,
    pub step_failures: Family<StepLabel, Counter>,
    pub step_retries: Family<StepOutcome, Counter>,
    pub handed_back: Family<StepLabel, Counter>,
    pub dead_letters: Family<StepLabel, Counter>,
    pub dead_letter_actions: Family<LetterAction, Counter>,
    pub dead_letters_forgotten: Counter,
    pub dead_letter_retention: Gauge,
    pub saga_started: Family<SagaLabel, Counter>,
    pub saga_completed: Family<SagaLabel, Counter>,
    pub saga_compensations_started: Family<SagaStep, Counter>,
    pub saga_compensated: Family<SagaReason, Counter>,
    pub saga_timed_out: Family<SagaLabel, Counter>,
    pub saga_failed: Family<SagaLabel, Counter>,
    pub saga_resumed: Family<SagaLabel, Counter>,
    pub saga_steps: Family<StepStatusLabel, Counter>,
    pub saga_duration: Timed<SagaOutcome>,
    pub saga_compensation_duration: Timed<SagaLabel>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            outbox_written: Counter::default(),
            outbox_published: Counter::default(),
            outbox_attempts: Family::default(),
            outbox_batch_size: sizes(),
            outbox_publish_duration: Histogram::new(exponential_buckets(0.0005, 2.0, 14)),
            outbox_age_at_publish: seconds(),
            outbox_parked: Counter::default(),
            outbox_republished: Counter::default(),
            relay_active: Gauge::default(),
            relay_takeovers: Counter::default(),
            broker_silent: Gauge::default(),
            inbox_applied: Family::default(),
            inbox_duplicates: Family::default(),
            inbox_batch_size: Family::new_with_constructor(sizes),
            step_duration: Family::new_with_constructor(seconds),
            hop: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 18))),
            refusals: Family::default(),
            step_failures: Family::default(),
            step_retries: Family::default(),
            handed_back: Family::default(),
            dead_letters: Family::default(),
            dead_letter_actions: Family::default(),
            dead_letters_forgotten: Counter::default(),
            dead_letter_retention: Gauge::default(),
            saga_started: Family::default(),
            saga_completed: Family::default(),
            saga_compensations_started: Family::default(),
            saga_compensated: Family::default(),
            saga_timed_out: Family::default(),
            saga_failed: Family::default(),
            saga_resumed: Family::default(),
            saga_steps: Family::default(),
            saga_duration: Family::new_with_constructor(seconds),
            saga_compensation_duration: Family::new_with_constructor(seconds),
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let m = Metrics::default();
        registry.register("outbox_written", "Events written to the outbox", m.outbox_written.clone());
        registry.register("outbox_published", "Events acknowledged by the broker", m.outbox_published.clone());
        let help = "Attempts to publish an event, by outcome; what was sent behind a failed one is not counted";
        registry.register("outbox_publish_attempts", help, m.outbox_attempts.clone());
        registry.register("outbox_batch_size", "Events per batch of the relay", m.outbox_batch_size.clone());
        let help = "From the first event of a relay's batch to its last receipt";
        let duration = m.outbox_publish_duration.clone();
        registry.register_with_unit("outbox_publish_duration", help, Unit::Seconds, duration);
        let help = "From an event's transaction to its receipt";
        registry.register_with_unit("outbox_age_at_publish", help, Unit::Seconds, m.outbox_age_at_publish.clone());
        registry.register("outbox_parked", "Events parked after their last attempt", m.outbox_parked.clone());
        let help = "Events put back because the stream lost them";
        registry.register("outbox_republished", help, m.outbox_republished.clone());
        registry.register("relay_active", "1 while this replica's relay is the active one", m.relay_active.clone());
        let help = "Times this replica's relay became the active one";
        registry.register("relay_takeovers", help, m.relay_takeovers.clone());
        let help = "1 while NATS is connected and JetStream does not answer this replica's relay";
        registry.register("broker_silent", help, m.broker_silent.clone());
        let help = "Events taken for the first time, by step: applied, refused or too late";
        registry.register("inbox_applied", help, m.inbox_applied.clone());
        let help = "Deliveries of events that the step had taken before";
        registry.register("inbox_duplicates", help, m.inbox_duplicates.clone());
        registry.register("inbox_batch_size", "Events per batch of a step", m.inbox_batch_size.clone());
        let help = "How long a step takes for a batch";
        registry.register_with_unit("step_duration", help, Unit::Seconds, m.step_duration.clone());
        let help = "How long an event takes for each part of its way to a step's effect, and for the whole of it";
        registry.register_with_unit("hop", help, Unit::Seconds, m.hop.clone());
        registry.register("refusals", "Events answered with a business refusal, by step", m.refusals.clone());
        let help = "Deliveries that failed for their event's sake, by step: each takes one of its attempts";
        registry.register("step_failures", help, m.step_failures.clone());
        let help = "Failed deliveries that are tried again, or no more, by step";
        registry.register("step_retries", help, m.step_retries.clone());
        let help =
            "Deliveries of events in a version that this build cannot read, handed back for a replica of another build";
        registry.register("unknown_versions_handed_back", help, m.handed_back.clone());
        registry.register("dead_letters", "Events that became dead letters, by step", m.dead_letters.clone());
        let help = "What was done to dead letters, and what came of it";
        registry.register("dead_letter_actions", help, m.dead_letter_actions.clone());
        let help = "Dead letters that were deleted for their age while they still waited for somebody";
        registry.register("dead_letters_forgotten", help, m.dead_letters_forgotten.clone());
        let help = "How long dead letters are kept";
        registry.register_with_unit("dead_letter_retention", help, Unit::Seconds, m.dead_letter_retention.clone());
        m.register_sagas(registry);
        m
    }

    fn register_sagas(&self, registry: &mut Registry) {
        registry.register("saga_started", "Sagas started", self.saga_started.clone());
        let help = "Sagas that came to their good end; a customer may yet have one undone";
        registry.register("saga_completed", help, self.saga_completed.clone());
        let help = "Sagas that began to be undone, by the step that decided it";
        registry.register("saga_compensations_started", help, self.saga_compensations_started.clone());
        let help = "Sagas that were undone, by the step at which they turned back";
        registry.register("saga_compensated", help, self.saga_compensated.clone());
        registry.register("saga_timed_out", "Sagas that passed their deadline", self.saga_timed_out.clone());
        registry.register("saga_failed", "Sagas whose compensation got stuck", self.saga_failed.clone());
        registry.register("saga_resumed", "Stuck sagas that were driven on", self.saga_resumed.clone());
        registry.register("saga_steps", "Steps taken, by what they came to", self.saga_steps.clone());
        let help = "From a saga's start to its first end";
        registry.register_with_unit("saga_duration", help, Unit::Seconds, self.saga_duration.clone());
        let help = "From the decision to undo a saga to the last receipt";
        let duration = self.saga_compensation_duration.clone();
        registry.register_with_unit("saga_compensation_duration", help, Unit::Seconds, duration);
    }

    /// Counts the deliveries of one committed batch; those that were not fresh have been applied before.
    pub(crate) fn count_deliveries(&self, step: &'static str, deliveries: usize, fresh: usize, refused: usize) {
        let label = StepLabel { step };
        self.inbox_applied.get_or_create_owned(&label).inc_by(fresh as u64);
        self.inbox_duplicates.get_or_create_owned(&label).inc_by(deliveries.saturating_sub(fresh) as u64);
        self.refusals.get_or_create_owned(&label).inc_by(refused as u64);
    }
}
