//! The report of the load generator (`./scripts/load --json`).

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Load {
    pub(crate) passed: bool,
    pub(crate) orders: u64,
    pub(crate) ended_per_second: f64,
    pub(crate) ended_in_second: Vec<u32>,
    pub(crate) defects: Vec<String>,
    /// From the due time to the answer.
    pub(crate) answer: Latency,
    /// From creation to the saga's end, by the suite's clock.
    pub(crate) saga: Latency,
    /// From the due time to the end, as observed by the client.
    pub(crate) seen_by_client: Latency,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}
