//! The usage of the pools, read at each scrape.

use prometheus_client::metrics::gauge::ConstGauge;

use super::Pools;
use crate::metrics::Metrics;

/// Registers `database_pool_connections{pool, state}` with state `idle` or `used`.
pub fn register_metrics(metrics: &Metrics, pools: &Pools) {
    let pools = pools.clone();
    metrics.on_scrape(move |scrape| {
        let connections = pools.named().into_iter().flat_map(|(name, pool, opener)| {
            let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
            let used = (i64::from(pool.size()) - idle - i64::from(opener.lost())).max(0);
            let count = |(state, count)| ([("pool", name), ("state", state)], ConstGauge::new(count));
            [("idle", idle), ("used", used)].map(count)
        });
        scrape.family("database_pool_connections", "Open database connections", connections)
    });
}
