//! How long a loop leaves work to gather before its next batch, so that fewer and larger transactions do it: the longer, the larger
//! the last batch was. A single event waits for nobody. Against fixed windows of 5 and 15 ms the p50 from order to end at 100
//! orders a second is 27 ms instead of 42 (docs/performance.md).

use std::time::Duration;

/// The time in which an event arrives at two thousand a second.
const EACH: Duration = Duration::from_micros(500);

/// The wait after a batch of so many events of `full` at most. A full batch has left others behind, which need not wait for company.
pub(crate) fn after_batch(events: usize, full: usize, most: Duration) -> Duration {
    if events < full { window(events, most) } else { Duration::ZERO }
}

/// The wait after so many events, or for so many answers, `most` at most.
pub fn window(events: usize, most: Duration) -> Duration {
    match u32::try_from(events) {
        Ok(0 | 1) => Duration::ZERO,
        Ok(events) => EACH.saturating_mul(events).min(most),
        Err(_) => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_waits_for_nobody_and_many_wait_for_more() {
        let most = Duration::from_millis(40);
        let of = |batch| window(batch, most);
        assert_eq!([of(0), of(1)], [Duration::ZERO; 2]);
        assert_eq!([of(2), of(20)], [1, 10].map(Duration::from_millis));
        assert_eq!([of(80), of(200), of(usize::MAX)], [most; 3]);
    }

    #[test]
    fn who_is_behind_does_not_wait() {
        let most = Duration::from_millis(40);
        assert_eq!([99, 100].map(|batch| after_batch(batch, 100, most)), [most, Duration::ZERO]);
    }
}
