//! Validation and view of `/v1/faults`. Faults expire after a minute by default and after an hour at most, so that one experiment
//! does not affect the next.

use bootstrap::Problem;
use serde::Serialize;
use utoipa::ToSchema;

use crate::faults::FaultSettings;

const MAX_LATENCY_MS: u64 = 30_000;
const MAX_EXPIRY_SECONDS: u64 = 3_600;

/// The armed faults; all zero when none is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FaultsView {
    armed: bool,
    #[serde(flatten)]
    settings: FaultSettings,
}

impl From<Option<FaultSettings>> for FaultsView {
    fn from(armed: Option<FaultSettings>) -> Self {
        Self { armed: armed.is_some(), settings: armed.unwrap_or_default() }
    }
}

pub(super) fn validated(faults: FaultSettings) -> Result<FaultSettings, Problem> {
    let mut problem = Problem::unprocessable("The faults are not acceptable; see `errors`.");
    let mut refuse = |pointer: &str, detail: &str| problem = problem.clone().with_error(pointer, detail);
    if faults.latency_ms > MAX_LATENCY_MS {
        refuse("/latency_ms", "must be at most 30000");
    }
    let rates =
        [("/error_rate", faults.error_rate), ("/drop_rate", faults.drop_rate), ("/decline_rate", faults.decline_rate)];
    for (pointer, _) in rates.iter().filter(|(_, rate)| !(0.0..=1.0).contains(rate)) {
        refuse(pointer, "must lie between 0 and 1");
    }
    if !(1..=MAX_EXPIRY_SECONDS).contains(&faults.expires_in_seconds) {
        refuse("/expires_in_seconds", "must lie between 1 and 3600");
    }
    if problem.errors.is_empty() { Ok(faults) } else { Err(problem) }
}
