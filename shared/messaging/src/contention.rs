//! Lost races for locks: not a failure, only to be tried again. A database that does not answer is one.

use std::time::Duration;

use crate::{StepError, error::Severity, silence::unless_silent};

/// Runs `work` again when it lost a race for locks (deadlock, lock timeout), a few times; gives it up when a unit of
/// work in it gets no answer.
pub async fn retry_contended<T, E, F>(mut work: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: Contention + From<sqlx::Error>,
{
    const ATTEMPTS: u32 = 5;
    let mut attempt = 1;
    loop {
        match unless_silent(work(), |error| Err(error.into())).await {
            Err(error) if error.is_contended() && attempt < ATTEMPTS => {
                let limit = 5 * u64::from(attempt);
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..=limit))).await;
                attempt += 1;
            }
            other => return other,
        }
    }
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
