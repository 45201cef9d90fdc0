//! What the load generator found, as it writes it (`./scripts/load --json`).

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Load {
    pub(crate) passed: bool,
    pub(crate) orders: u64,
    pub(crate) ended_per_second: f64,
    pub(crate) ended_in_second: Vec<u32>,
    pub(crate) defects: Vec<String>,
    /// From due to answered.
    pub(crate) answer: Latency,
    /// From created to terminal, by the suite's own times.
    pub(crate) saga: Latency,
    /// From due to terminal, as its client sees it.
    pub(crate) seen_by_client: Latency,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}
