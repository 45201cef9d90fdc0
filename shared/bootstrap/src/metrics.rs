//! The service's metrics in one registry, scraped as OpenMetrics text. Names follow the Prometheus conventions:
//! base units, and `_total` (appended by the registry) for counters.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{exemplar::HistogramWithExemplars, family::Family, info::Info},
    registry::Registry,
};

use crate::process;

/// What `/metrics` answers with.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds, from a cached read to a saga's deadline.
pub const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The registry, with the process itself in it; clones share it.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        process::register_metrics(&mut registry);
        Metrics { registry: Arc::new(Mutex::new(registry)) }
    }
}

/// Names the trace of one observation: an exemplar.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TraceLabel {
    /// 32 hex digits.
    pub trace_id: String,
}

/// A histogram over [`SECONDS`] whose buckets each remember a trace; usable as the constructor of a `Family`.
pub fn seconds_histogram() -> HistogramWithExemplars<TraceLabel> {
    HistogramWithExemplars::new(SECONDS.into_iter())
}

/// Histograms of seconds by labels.
pub type SecondsFamily<L> = Family<L, HistogramWithExemplars<TraceLabel>, fn() -> HistogramWithExemplars<TraceLabel>>;

impl Metrics {
    /// Adds metrics, during setup: `metrics.register(|registry| registry.register("name", "help", metric))`.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says which build this is: `build_info{version, features} 1`. To be called once.
    pub fn build_info(&self, version: &'static str, features: &'static str) {
        let info = Info::new([("version", version), ("features", features)]);
        self.register(|registry| registry.register("build", "Which build this is", info));
    }

    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// When a metric's own encoder refuses.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn a_registered_counter_is_encoded_with_its_conventional_name() {
        let metrics = Metrics::default();
        let counter: Counter = Counter::default();
        metrics.register(|registry| registry.register("orders_accepted", "Orders accepted", counter.clone()));
        counter.inc();
        let text = metrics.encode().unwrap();
        assert!(text.contains("orders_accepted_total 1"));
        assert!(text.ends_with("# EOF\n"));
    }
}
