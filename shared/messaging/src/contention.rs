//! Retry delays: short after a lost race for locks, which is no failure; growing after an outage.

use std::time::Duration;

use tokio::time::sleep;

use crate::{StepError, error::Severity, response_timeout::watch_responses};

/// The number of attempts at work that loses races for locks.
pub(crate) const ATTEMPTS: u32 = 5;

pub(crate) async fn race_delay(races: u32) {
    sleep(Duration::from_millis(rand::random_range(0..=10 * u64::from(races)))).await;
}

/// Waits after this many consecutive failures: exponential backoff with jitter, up to a second.
pub(crate) async fn backoff(failures: u32) {
    let limit = Duration::from_millis(50 << failures.min(5)).min(Duration::from_secs(1));
    sleep(limit.mul_f64(rand::random_range(0.5..=1.0))).await;
}

/// Retries `work` a few times when it loses a race for locks (deadlock, lock timeout). Fails when a unit of work in it gets no
/// response from the database.
pub async fn retry_contended<T, E, F>(mut work: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: Contention + From<sqlx::Error>,
{
    let mut attempt = 1;
    loop {
        match watch_responses(work(), |error| Err(error.into())).await {
            Err(error) if error.is_contended() && attempt < ATTEMPTS => race_delay(attempt).await,
            other => return other,
        }
        attempt += 1;
    }
}

/// An error that may be only a lost race for locks.
pub trait Contention {
    fn is_contended(&self) -> bool;
}

impl Contention for StepError {
    fn is_contended(&self) -> bool {
        matches!(self, StepError::Contended(_))
    }
}

impl Contention for sqlx::Error {
    fn is_contended(&self) -> bool {
        Severity::of(self) == Severity::Contended
    }
}
