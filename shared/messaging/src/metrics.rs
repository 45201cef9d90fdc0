//! The metrics of messaging and sagas. Names follow the Prometheus conventions; the registry adds `_total`. The effects of a
//! transaction are counted after its commit. METRICS.md in the project's root lists all metrics.

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

/// Defines sets of labels, by the names of the labels.
macro_rules! label_sets {
    ($($set:ident { $($label:ident),* })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $set {
            $(pub $label: &'static str,)*
        }
    )*};
}

label_sets! {
    StepLabel { step }
    StepOutcome { step, outcome }
    StepStatusLabel { step, status }
    Hop { step, hop }
    Outcome { outcome }
    SagaLabel { saga_type }
    SagaStep { saga_type, step }
    SagaReason { saga_type, reason }
    SagaOutcome { saga_type, outcome }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LetterAction {
    pub step: String,
    pub action: &'static str,
    pub outcome: &'static str,
}

/// The exemplar of an observation: its trace.
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
type Timed<L> = Family<L, HistogramWithExemplars<TraceLabel>, fn() -> HistogramWithExemplars<TraceLabel>>;
type Sized<L> = Family<L, Histogram, fn() -> Histogram>;

/// From a millisecond to two minutes; usable as the constructor of a [`Timed`].
fn seconds() -> HistogramWithExemplars<TraceLabel> {
    const BOUNDS: [f64; 16] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
    HistogramWithExemplars::new(BOUNDS.into_iter())
}

fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 11))
}

/// Defines [`Metrics`] by a table. Each row has the field and its type, the constructor unless it is the default, the registered
/// name, the unit if any, and the help text.
macro_rules! metrics {
    (make) => { Default::default() };
    (make $metric:expr) => { $metric };
    (register $registry:ident $name:literal $help:literal $metric:ident) => {
        $registry.register($name, $help, $metric.clone())
    };
    (register $registry:ident $name:literal $help:literal $metric:ident $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $metric.clone())
    };
    ($($field:ident: $kind:ty $(= $metric:expr)?, $name:literal $($unit:ident)?, $help:literal;)*) => {
        #[derive(Debug, Clone)]
        pub struct Metrics {
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl Metrics {
            /// Creates and registers the metrics.
            pub fn register(registry: &mut Registry) -> Self {
                $(
                    let $field: $kind = metrics!(make $($metric)?);
                    metrics!(register registry $name $help $field $($unit)?);
                )*
                Metrics { $($field,)* }
            }
        }
    };
}

metrics! {
    outbox_written: Counter, "outbox_written", "Events written to the outbox";
    outbox_published: Counter, "outbox_published", "Events acknowledged by the broker";
    outbox_attempts: Family<Outcome, Counter>, "outbox_publish_attempts",
        "Attempts to publish an event, by outcome; events sent after a failed one are not counted";
    outbox_batch_size: Histogram = sizes(), "outbox_batch_size", "Events per batch of the relay";
    outbox_publish_duration: Histogram = Histogram::new(exponential_buckets(0.0005, 2.0, 14)),
        "outbox_publish_duration" Seconds, "From the first event of a relay's batch to its last acknowledgement";
    outbox_age_at_publish: HistogramWithExemplars<TraceLabel> = seconds(), "outbox_age_at_publish" Seconds,
        "From an event's transaction to its acknowledgement by the broker";
    outbox_retries_helped: Counter, "outbox_retries_helped", "Events published after the broker had refused them";
    outbox_parked: Counter, "outbox_parked", "Events parked because the broker refused them";
    outbox_republished: Counter, "outbox_republished", "Events published again because the stream lost them";
    relay_active: Gauge, "relay_active", "1 while this replica's relay is active";
    relay_takeovers: Counter, "relay_takeovers", "Times this replica's relay became active";
    broker_silent: Gauge, "broker_silent",
        "1 while NATS is connected and JetStream does not answer this replica's relay";
    inbox_applied: Family<StepLabel, Counter>, "inbox_applied",
        "Events processed for the first time, by step: applied, refused or too late";
    inbox_duplicates: Family<StepLabel, Counter>, "inbox_duplicates",
        "Deliveries of events that the step had processed before, or that are its dead letters already";
    inbox_batch_size: Sized<StepLabel> = Family::new_with_constructor(sizes), "inbox_batch_size",
        "Events per batch of a step";
    step_duration: Timed<StepLabel> = Family::new_with_constructor(seconds), "step_duration" Seconds,
        "Processing time of a batch, by step";
    hop: Sized<Hop> = Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 18))),
        "hop" Seconds, "Latency of each part of an event's way to a step's effect, and of the whole";
    refusals: Family<StepLabel, Counter>, "refusals", "Events answered with a business refusal, by step";
    step_failures: Family<StepLabel, Counter>, "step_failures",
        "Deliveries that failed because of their event, by step: each counts as an attempt";
    step_retries: Family<StepOutcome, Counter>, "step_retries",
        "Failed deliveries, by step: retried, or attempts exhausted";
    step_retries_helped: Family<StepLabel, Counter>, "step_retries_helped",
        "Events that took effect after failed deliveries, by step";
    handed_back: Family<StepLabel, Counter>, "unknown_versions_handed_back",
        "Deliveries of events of a version that this build cannot read, returned for a replica of another build";
    dead_letters: Family<StepLabel, Counter>, "dead_letters", "Events that became dead letters, by step";
    dead_letter_actions: Family<LetterAction, Counter>, "dead_letter_actions",
        "Actions on dead letters, by outcome";
    dead_letters_forgotten: Counter, "dead_letters_forgotten",
        "Dead letters that were deleted because of their age while they were pending";
    partitions_dropped: Counter, "partitions_dropped",
        "Partitions of the inbox and of published events that were dropped after their retention";
    dead_letter_retention: Gauge, "dead_letter_retention" Seconds, "How long dead letters are kept";
    saga_started: Family<SagaLabel, Counter>, "saga_started", "Sagas started";
    saga_completed: Family<SagaLabel, Counter>, "saga_completed",
        "Sagas that were completed; a customer may still cancel one";
    saga_compensations_started: Family<SagaStep, Counter>, "saga_compensations_started",
        "Sagas whose compensation began, by the step that decided it";
    saga_compensated: Family<SagaReason, Counter>, "saga_compensated",
        "Sagas that were compensated, by the step at which compensation began";
    saga_timed_out: Family<SagaLabel, Counter>, "saga_timed_out", "Sagas that passed their deadline";
    timeout_detector_running: Gauge, "timeout_detector_running", "1 while this replica checks sagas for passed deadlines";
    timeout_check_duration: Histogram = Histogram::new(exponential_buckets(0.0005, 2.0, 14)),
        "timeout_check_duration" Seconds, "Duration of one check of the timeout detector";
    saga_failed: Family<SagaLabel, Counter>, "saga_failed", "Sagas whose compensation attempts are exhausted";
    saga_resumed: Family<SagaLabel, Counter>, "saga_resumed", "Failed sagas that an operator resumed";
    saga_steps: Family<StepStatusLabel, Counter>, "saga_steps", "Steps taken, by outcome";
    saga_duration: Timed<SagaOutcome> = Family::new_with_constructor(seconds), "saga_duration" Seconds,
        "From a saga's start to its first final state";
    saga_compensation_duration: Timed<SagaLabel> = Family::new_with_constructor(seconds),
        "saga_compensation_duration" Seconds, "From the decision to compensate a saga to the last undo confirmation";
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::register(&mut Registry::default())
    }
}

impl Metrics {
    /// Counts the deliveries of one committed batch; those that are not fresh were duplicates.
    pub(crate) fn count_deliveries(&self, step: &'static str, deliveries: usize, fresh: usize, refused: usize) {
        let label = StepLabel { step };
        self.inbox_applied.get_or_create_owned(&label).inc_by(fresh as u64);
        self.inbox_duplicates.get_or_create_owned(&label).inc_by(deliveries.saturating_sub(fresh) as u64);
        self.refusals.get_or_create_owned(&label).inc_by(refused as u64);
    }
}
