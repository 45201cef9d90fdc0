//! What messaging counts. Names follow the Prometheus conventions; the registry adds `_total`.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    pub step: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub outbox_published: Counter,
    pub outbox_parked: Counter,
    pub outbox_republished: Counter,
    pub relay_active: Gauge,
    pub relay_takeovers: Counter,
    pub inbox_applied: Family<StepLabel, Counter>,
    pub inbox_duplicates: Family<StepLabel, Counter>,
    pub refusals: Family<StepLabel, Counter>,
    pub step_failures: Family<StepLabel, Counter>,
    pub dead_letters: Family<StepLabel, Counter>,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let m = Metrics::default();
        registry.register("outbox_published", "Events acknowledged by the broker", m.outbox_published.clone());
        registry.register("outbox_parked", "Events parked after their last attempt", m.outbox_parked.clone());
        registry.register(
            "outbox_republished",
            "Events put back because the stream lost them",
            m.outbox_republished.clone(),
        );
        registry.register("relay_active", "1 while this replica's relay is the active one", m.relay_active.clone());
        registry.register(
            "relay_takeovers",
            "Times this replica's relay became the active one",
            m.relay_takeovers.clone(),
        );
        registry.register("inbox_applied", "Events applied, by step", m.inbox_applied.clone());
        registry.register(
            "inbox_duplicates",
            "Deliveries of events applied before, by step",
            m.inbox_duplicates.clone(),
        );
        registry.register("refusals", "Events answered with a business refusal, by step", m.refusals.clone());
        registry.register("step_failures", "Deliveries that failed and were counted, by step", m.step_failures.clone());
        registry.register("dead_letters", "Events that became dead letters, by step", m.dead_letters.clone());
        m
    }
}
