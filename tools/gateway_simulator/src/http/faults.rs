//! Bodies of `/v1/faults`. Faults without a stated end expire after a minute, and none outlasts an hour, so that one
//! experiment does not spoil the next.

use std::time::Duration;

use bootstrap::Problem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::faults::FaultSettings;

const MAX_LATENCY_MS: u64 = 30_000;
const MAX_EXPIRY_SECONDS: u64 = 3_600;

/// What to arm.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultsBody {
    /// Added to every answer.
    #[serde(default)]
    #[schema(maximum = 30_000)]
    latency_ms: u64,
    /// Share of requests answered 503 without any effect.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    error_rate: f64,
    /// Share of requests whose connection is dropped without an answer: half of them before the effect, half after it.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    drop_rate: f64,
    /// Share of fresh charges that are declined with `card_declined`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1)]
    decline_rate: f64,
    /// The same seed strikes the same requests, in the order of their arrival.
    #[serde(default)]
    seed: u64,
    /// When everything is as before again.
    #[serde(default = "one_minute")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    expires_in_seconds: u64,
}

/// What is armed; all zero when nothing is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FaultsView {
    armed: bool,
    latency_ms: u64,
    error_rate: f64,
    drop_rate: f64,
    decline_rate: f64,
    seed: u64,
    /// Seconds left, rounded up.
    expires_in_seconds: u64,
}

impl FaultsBody {
    pub(super) fn validated(self) -> Result<(FaultSettings, Duration), Problem> {
        let mut problem = Problem::unprocessable("The faults are not acceptable; see `errors`.");
        let mut refuse = |pointer: &str, detail: &str| problem = problem.clone().with_error(pointer, detail);
        if self.latency_ms > MAX_LATENCY_MS {
            refuse("/latency_ms", "must be at most 30000");
        }
        let rates =
            [("/error_rate", self.error_rate), ("/drop_rate", self.drop_rate), ("/decline_rate", self.decline_rate)];
        for (pointer, _) in rates.iter().filter(|(_, rate)| !(0.0..=1.0).contains(rate)) {
            refuse(pointer, "must lie between 0 and 1");
        }
        if !(1..=MAX_EXPIRY_SECONDS).contains(&self.expires_in_seconds) {
            refuse("/expires_in_seconds", "must lie between 1 and 3600");
        }
        if !problem.errors.is_empty() {
            return Err(problem);
        }
        let settings = FaultSettings {
            latency: Duration::from_millis(self.latency_ms),
            error_rate: self.error_rate,
            drop_rate: self.drop_rate,
            decline_rate: self.decline_rate,
            seed: self.seed,
        };
        Ok((settings, Duration::from_secs(self.expires_in_seconds)))
    }
}

impl From<Option<(FaultSettings, Duration)>> for FaultsView {
    fn from(armed: Option<(FaultSettings, Duration)>) -> Self {
        let nothing =
            FaultSettings { latency: Duration::ZERO, error_rate: 0.0, drop_rate: 0.0, decline_rate: 0.0, seed: 0 };
        let (settings, left) = armed.unwrap_or((nothing, Duration::ZERO));
        Self {
            armed: armed.is_some(),
            latency_ms: settings.latency.as_millis() as u64,
            error_rate: settings.error_rate,
            drop_rate: settings.drop_rate,
            decline_rate: settings.decline_rate,
            seed: settings.seed,
            expires_in_seconds: left.as_millis().div_ceil(1_000) as u64,
        }
    }
}

fn one_minute() -> u64 {
    60
}
