//! The counters of this replica.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    attempts: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics::default();
        for outcome in ["accepted", "refused", "failed", "away"] {
            drop(metrics.attempts.get_or_create(&[("outcome", outcome)]));
        }
        let help = "Events posted to the webhook, by outcome: accepted, refused, failed, or the endpoint was away";
        registry.register("webhook_attempts", help, metrics.attempts.clone());
        metrics
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        self.attempts.get_or_create(&[("outcome", outcome)]).inc();
    }
}
