//! The service's metrics in one registry, scraped as OpenMetrics text. Names follow the Prometheus conventions:
//! base units, and `_total` (appended by the registry) for counters.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{TypedMetric, exemplar::HistogramWithExemplars, family::Family, info::Info},
    registry::Registry,
};

use crate::process;

/// The content type of `/metrics`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bucket bounds in seconds, from a cached read to a saga's deadline.
pub const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The registry, including the metrics of the process; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Metrics { registry: Arc::default() };
        metrics.on_scrape(process::write_metrics);
        metrics
    }
}

/// The exemplar of an observation: its trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TraceLabel {
    /// 32 hex digits.
    pub trace_id: String,
}

/// A histogram over [`SECONDS`] with an exemplar per bucket; usable as the constructor of a `Family`.
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

    /// Adds metrics that `write` reads at each scrape.
    pub fn on_scrape(&self, write: impl Fn(&mut Scrape<'_>) -> fmt::Result + Send + Sync + 'static) {
        self.register(|registry| registry.register_collector(Box::new(OnScrape(write))));
    }

    /// Adds `build_info{version, features} 1`. Call it once.
    pub fn build_info(&self, version: &'static str, features: &'static str) {
        let info = Info::new([("version", version), ("features", features)]);
        self.register(|registry| registry.register("build", "Which build this is", info));
    }

    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// When a metric's encoder fails.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

/// Writes metrics at a scrape.
#[derive(Debug)]
pub struct Scrape<'a>(DescriptorEncoder<'a>);

impl Scrape<'_> {
    /// A metric without labels.
    ///
    /// # Errors
    /// When it cannot be written; likewise for [`Self::family`].
    pub fn one<M: EncodeMetric + TypedMetric>(&mut self, name: &str, help: &str, metric: M) -> fmt::Result {
        metric.encode(self.0.encode_descriptor(name, help, None, M::TYPE)?)
    }

    /// A metric by labels.
    pub fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
        &mut self,
        name: &str,
        help: &str,
        metrics: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, M::TYPE)?;
        for (labels, metric) in metrics {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

struct OnScrape<F>(F);

impl<F> fmt::Debug for OnScrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnScrape")
    }
}

impl<F: Fn(&mut Scrape<'_>) -> fmt::Result + Send + Sync + 'static> Collector for OnScrape<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut Scrape(encoder))
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
