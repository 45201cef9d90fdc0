//! How full the pools are, read at each scrape.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::Pools;
use crate::metrics::Metrics;

/// Registers `database_pool_connections{pool, state}` with state `idle` or `used`.
pub fn register_metrics(metrics: &Metrics, pools: &Pools) {
    let collector = Box::new(PoolCollector(pools.clone()));
    metrics.register(|registry| registry.register_collector(collector));
}

#[derive(Debug)]
struct PoolCollector(Pools);

impl Collector for PoolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "database_pool_connections",
            "Open database connections",
            None,
            MetricType::Gauge,
        )?;
        for (name, pool, opener) in self.0.named() {
            let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
            let used = (i64::from(pool.size()) - idle - i64::from(opener.lost())).max(0);
            for (state, count) in [("idle", idle), ("used", used)] {
                let labels = [("pool", name), ("state", state)];
                ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
