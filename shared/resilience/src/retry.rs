//! Retries after transient failures: exponential backoff with full jitter, a limited number of attempts, and a time budget. Only
//! for idempotent operations.

use std::time::Duration;

use saga::Retry;
use tokio::time::{Instant, sleep};

/// Runs `operation` until it succeeds, fails with an error that is not `retryable`, or has used up the policy's attempts or the
/// budget; returns its last result.
///
/// Before attempt n + 1 it waits a uniformly random time between zero and [`Retry::bound`] of n ("full jitter", M. Brooker,
/// "Exponential Backoff And Jitter", AWS 2015), so that callers that failed together do not retry together. No attempt begins
/// later than `budget` after the first one; the operation itself limits the duration of an attempt.
pub async fn retry<T, E, F>(
    policy: &Retry,
    budget: Duration,
    retryable: impl Fn(&E) -> bool,
    operation: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    retry_with(policy, budget, || rand::random_range(0.0..=1.0), retryable, operation).await
}

/// `jitter` returns the share of the bound to wait, 0 to 1.
async fn retry_with<T, E, F>(
    policy: &Retry,
    budget: Duration,
    mut jitter: impl FnMut() -> f64,
    retryable: impl Fn(&E) -> bool,
    mut operation: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    let mut attempt = 1;
    loop {
        let error = match operation().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let wait = policy.bound(attempt).mul_f64(jitter());
        let in_time = begun.elapsed() + wait <= budget;
        if attempt >= policy.attempts || !in_time || !retryable(&error) {
            return Err(error);
        }
        sleep(wait).await;
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    const FIVE: Retry =
        Retry { attempts: 5, initial: Duration::from_millis(100), multiplier: 2.0, max: Duration::from_millis(300) };
    const AMPLE: Duration = Duration::from_secs(60);

    #[derive(Debug, PartialEq, Eq)]
    enum Failure {
        Transient(usize),
        Permanent,
    }

    fn is_transient(failure: &Failure) -> bool {
        matches!(failure, Failure::Transient(_))
    }

    /// The start times of the attempts of an operation that takes `each` and always fails.
    async fn attempts(policy: &Retry, budget: Duration, share: f64, each: Duration) -> Vec<Duration> {
        let begun = Instant::now();
        let seen = RefCell::new(Vec::new());
        let fail = || {
            seen.borrow_mut().push(begun.elapsed());
            let attempt = seen.borrow().len();
            async move {
                sleep(each).await;
                Err::<(), _>(Failure::Transient(attempt))
            }
        };
        let result = retry_with(policy, budget, || share, is_transient, fail).await;
        assert_eq!(result, Err(Failure::Transient(seen.borrow().len())), "the last error is the one returned");
        seen.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_grow_to_their_bound() {
        let at = attempts(&FIVE, AMPLE, 1.0, Duration::ZERO).await;
        assert_eq!(at, [0, 100, 300, 600, 900].map(Duration::from_millis));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_success_ends_it() {
        let calls = RefCell::new(0);
        let third_call_succeeds = || {
            *calls.borrow_mut() += 1;
            let call = *calls.borrow();
            async move { if call < 3 { Err(Failure::Transient(call)) } else { Ok(call) } }
        };
        assert_eq!(retry(&FIVE, AMPLE, is_transient, third_call_succeeds).await, Ok(3));
        assert_eq!(calls.into_inner(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_failure_is_not_retried() {
        let calls = RefCell::new(0);
        let fail = || {
            *calls.borrow_mut() += 1;
            async { Err::<(), _>(Failure::Permanent) }
        };
        assert_eq!(retry(&FIVE, AMPLE, is_transient, fail).await, Err(Failure::Permanent));
        assert_eq!(calls.into_inner(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_begins_after_the_budget() {
        let slow = Duration::from_secs(4);
        let at = attempts(&FIVE, Duration::from_secs(10), 1.0, slow).await;
        assert_eq!(at, [0, 4_100, 8_300].map(Duration::from_millis));
        assert_eq!(attempts(&FIVE, Duration::ZERO, 1.0, Duration::ZERO).await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_without_attempts_makes_one() {
        let never = Retry { attempts: 0, ..FIVE };
        assert_eq!(attempts(&never, AMPLE, 1.0, Duration::ZERO).await.len(), 1);
    }

    proptest! {
        #[test]
        fn every_wait_lies_between_zero_and_its_bound(share in 0.0..=1.0f64, budget in 0u64..2_000) {
            let budget = Duration::from_millis(budget);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            let at = runtime.expect("a runtime").block_on(attempts(&FIVE, budget, share, Duration::ZERO));
            prop_assert!(at.len() <= 5);
            prop_assert!(at.iter().all(|moment| *moment <= budget + Duration::from_millis(1)));
            for (number, pair) in (1..).zip(at.windows(2)) {
                // The timer's resolution is a millisecond.
                prop_assert!(pair[1] - pair[0] <= FIVE.bound(number) + Duration::from_millis(1));
            }
        }
    }
}
