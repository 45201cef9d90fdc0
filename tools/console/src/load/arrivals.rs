//! When the next order is due: at a rate (open loop), or when an earlier order has ended (closed loop).

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

/// How fast orders are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrivalMode {
    /// At a rate per second that is reached within the ramp.
    Open { rate: u32, ramp: Duration },
    /// As fast as orders end.
    Closed { in_flight: u32 },
}

/// The arrivals of a load, one after the other.
#[derive(Debug)]
pub(super) struct Arrivals {
    pace: ArrivalMode,
    pub(super) began: Instant,
    taken: u64,
    free: Arc<Semaphore>,
}

impl Arrivals {
    /// In a closed loop `free` has a permit for each order that may be placed.
    pub(super) fn begin(pace: ArrivalMode, free: Arc<Semaphore>) -> Self {
        Arrivals { pace, began: Instant::now(), taken: 0, free }
    }

    /// Waits for the next arrival and returns when it was due. A late arrival is not skipped, so the rate is kept and lateness
    /// counts as latency.
    pub(super) async fn next(&mut self) -> Instant {
        let due = match self.pace {
            ArrivalMode::Open { rate, ramp } => {
                let due = self.began + due_after(self.taken, rate, ramp);
                sleep_until(due).await;
                due
            }
            ArrivalMode::Closed { .. } => {
                if let Ok(permit) = self.free.acquire().await {
                    permit.forget();
                }
                Instant::now()
            }
        };
        self.taken += 1;
        due
    }
}

/// When order `number` is due, from 0. While the rate grows linearly, rate * t² / (2 * ramp) orders are due after time t.
fn due_after(number: u64, rate: u32, ramp: Duration) -> Duration {
    let (number, rate, ramp) = (number as f64, f64::from(rate), ramp.as_secs_f64());
    let in_ramp = rate * ramp / 2.0;
    let seconds = if number < in_ramp { (2.0 * number * ramp / rate).sqrt() } else { ramp + (number - in_ramp) / rate };
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_ms(number: u64, rate: u32, ramp: u64) -> u128 {
        due_after(number, rate, Duration::from_secs(ramp)).as_millis()
    }

    #[test]
    fn at_a_rate_all_arrivals_are_equally_spaced() {
        assert_eq!([due_ms(0, 100, 0), due_ms(1, 100, 0), due_ms(250, 100, 0)], [0, 10, 2500]);
    }

    #[test]
    fn a_ramp_places_half_as_many_and_then_goes_on_at_the_rate() {
        assert_eq!(due_ms(1_000, 100, 20), 20_000);
        assert_eq!(due_ms(1_100, 100, 20), 21_000);
        assert!(due_ms(10, 100, 20) > 5 * due_ms(10, 100, 0));
        let due = |n| due_after(n, 100, Duration::from_secs(20));
        assert!((1..1_000).all(|n| due(n) > due(n - 1)));
    }
}
