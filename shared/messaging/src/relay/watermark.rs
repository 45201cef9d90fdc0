//! From where the relay reads. A row with a lower position may commit after one with a higher, so
//! rows are found by being there, never by a cursor; but reading from the very beginning every time
//! would step over the index entries of all the rows that vacuum has not removed yet. So it reads
//! from what was the end some seconds ago, and sweeps everything from time to time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How far behind the newest row the relay reads: longer than a transaction takes as a rule.
const LAG: Duration = Duration::from_secs(3);
/// How often everything is read, at most.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A sweep that is slow, because an old snapshot keeps dead rows alive, becomes rarer by this factor.
const SWEEP_SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Watermark {
    /// Ends of reading that are younger than the lag, oldest first.
    ends: VecDeque<(Instant, i64)>,
    floor: i64,
    next_sweep: Instant,
    read_began: Instant,
}

impl Watermark {
    /// Begins with a sweep.
    pub(super) fn new(now: Instant) -> Self {
        Watermark { ends: VecDeque::new(), floor: 0, next_sweep: now, read_began: now }
    }

    /// The position after which to read now.
    pub(super) fn floor(&mut self, now: Instant) -> i64 {
        while let Some((seen, end)) = self.ends.front().copied() {
            if now.duration_since(seen) < LAG {
                break;
            }
            self.floor = self.floor.max(end);
            self.ends.pop_front();
        }
        self.read_began = now;
        if now >= self.next_sweep { 0 } else { self.floor }
    }

    /// A read from `floor` has ended at `end`, if it found anything.
    pub(super) fn read(&mut self, now: Instant, floor: i64, end: Option<i64>) {
        if floor == 0 {
            let took = now.duration_since(self.read_began);
            self.next_sweep = now + SWEEP_EVERY.max(took * SWEEP_SHARE);
        }
        let newest = self.ends.back().map_or(self.floor, |(_, end)| *end);
        if let Some(end) = end.filter(|end| *end > newest) {
            self.ends.push_back((now, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_commits_late_is_read_at_once_within_the_lag_and_by_the_sweep_after_it() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        assert_eq!(watermark.floor(start), 0, "it begins with a sweep");
        watermark.read(start, 0, Some(100));
        let soon = start + Duration::from_millis(500);
        assert!(watermark.floor(soon) < 50, "position 50 committed late and is still read");
        watermark.read(soon, 0, Some(200));
        let later = start + Duration::from_millis(3_100);
        assert_eq!(watermark.floor(later), 0, "the sweep reads everything");
        watermark.read(later, 0, None);
        assert_eq!(watermark.floor(later), 100, "between sweeps it reads from the end of three seconds ago");
    }

    #[test]
    fn slow_sweeps_become_rare() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        assert_eq!(watermark.floor(start), 0);
        let done = start + Duration::from_secs(1);
        watermark.read(done, 0, Some(7));
        assert_eq!(watermark.floor(done + Duration::from_secs(19)), 7);
        assert_eq!(watermark.floor(done + Duration::from_secs(20)), 0);
    }
}
