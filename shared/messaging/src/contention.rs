//! Lost races for locks: not a failure, only to be tried again.

use std::time::Duration;

use crate::{StepError, error::Severity};

/// Runs `work` again when it lost a race for locks (deadlock, lock timeout), a few times.
pub async fn retry_contended<T, E, F>(mut work: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: Contention,
{
    const ATTEMPTS: u32 = 5;
    for attempt in 1..ATTEMPTS {
        match work().await {
            Err(error) if error.is_contended() => {
                let limit = 5 * u64::from(attempt);
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..=limit))).await;
            }
            other => return other,
        }
    }
    work().await
}

/// An error that can tell whether it was only a lost race.
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
