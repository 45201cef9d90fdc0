//! Percentiles of durations, by the nearest rank: each one is a duration that was really measured.

use std::time::Duration;

use serde::Serialize;

/// The distribution of some durations, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Latency {
    /// All zero when nothing was measured.
    pub(super) fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        let at = |percent| rank(&sorted, percent).as_secs_f64() * 1_000.0;
        Latency { count: sorted.len(), p50_ms: at(50), p95_ms: at(95), p99_ms: at(99), max_ms: at(100) }
    }
}

/// The smallest of the durations below or at which `percent` of them lie.
fn rank(sorted: &[Duration], percent: usize) -> Duration {
    let position = (sorted.len() * percent).div_ceil(100);
    sorted.get(position.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_durations() {
        let latency = Latency::of((1..=200).rev().map(Duration::from_millis));
        assert_eq!((latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms), (100.0, 190.0, 198.0, 200.0));
    }

    #[test]
    fn one_duration_is_every_percentile_and_none_is_zero() {
        let one = Latency::of([Duration::from_millis(3)]);
        assert_eq!((one.count, one.p50_ms, one.p99_ms), (1, 3.0, 3.0));
        assert_eq!(Latency::of([]).max_ms, 0.0);
    }
}
