//! Distributions of durations, kept as HDR histograms: microseconds, three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// An hour; longer durations count as this.
const LONGEST_MICROS: u64 = 3_600_000_000;

/// The distribution of some durations, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) count: u64,
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
}

impl Latency {
    /// All zero when nothing was measured.
    #[expect(clippy::expect_used, reason = "a histogram may have 0 to 5 digits")]
    pub(super) fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut histogram = Histogram::<u64>::new_with_max(LONGEST_MICROS, 3).expect("three digits are allowed");
        for duration in durations {
            histogram.saturating_record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        }
        let milliseconds = |micros: u64| micros as f64 / 1_000.0;
        let at = |quantile| milliseconds(histogram.value_at_quantile(quantile));
        Latency {
            count: histogram.len(),
            mean_ms: histogram.mean() / 1_000.0,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: milliseconds(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_thousandth() {
        let latency = Latency::of((1..=200).rev().map(Duration::from_millis));
        let near = |found: f64, wanted: f64| (found - wanted).abs() <= wanted / 1_000.0;
        assert!(near(latency.p50_ms, 100.0) && near(latency.p95_ms, 190.0) && near(latency.p99_ms, 198.0));
        assert!(near(latency.max_ms, 200.0) && near(latency.mean_ms, 100.5));
    }

    #[test]
    fn nothing_measured_is_zero() {
        assert_eq!((Latency::of([]).count, Latency::of([]).p99_ms, Latency::of([]).max_ms), (0, 0.0, 0.0));
    }
}
