//! What payment counts besides its steps: declines, and how the card processor answers.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CodeLabel {
    pub(crate) code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AskLabel {
    pub(crate) ask: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabel {
    pub(crate) ask: &'static str,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) declined: Family<CodeLabel, Counter>,
    pub(crate) calls: Family<CallLabel, Counter>,
    pub(crate) duration: Family<AskLabel, Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let m = Metrics {
            declined: Family::default(),
            calls: Family::default(),
            duration: Family::new_with_constructor(bootstrap::metrics::seconds_histogram),
        };
        registry.register("payments_declined", "Payments that the card processor declined", m.declined.clone());
        registry.register("gateway_calls", "Questions to the card processor, by outcome", m.calls.clone());
        let help = "How long a question to the card processor takes, repeats not included";
        registry.register_with_unit("gateway_call_duration", help, Unit::Seconds, m.duration.clone());
        m
    }
}
