//! From where the relay reads. A row with a lower position may commit after one with a higher, so
//! rows are found by being there, never by a cursor; but reading from the very beginning every time
//! would step over the index entries of all the rows that vacuum has not removed yet. So it reads
//! from what was the end a moment ago, provided that no transaction which could still write
//! below it is open, and sweeps everything from time to time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How far behind the newest row the relay reads.
pub(super) const LAG: Duration = Duration::from_millis(400);
/// How closely the ends of reading are kept; also how often the floor rises.
const GRAIN: Duration = Duration::from_millis(100);
/// How often everything is read, at most.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A sweep that is slow, because an old snapshot keeps dead rows alive, becomes rarer by this factor.
const SWEEP_SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Watermark {
    /// Ends of reading that are younger than the lag, oldest first.
    ends: VecDeque<(Instant, i64)>,
    /// The highest position seen.
    newest: i64,
    floor: i64,
    /// Where the floor will be after one more read from where it is.
    rising_to: Option<i64>,
    next_sweep: Instant,
    read_began: Instant,
}

impl Watermark {
    /// Begins with a sweep.
    pub(super) fn new(now: Instant) -> Self {
        Watermark { ends: VecDeque::new(), newest: 0, floor: 0, rising_to: None, next_sweep: now, read_began: now }
    }

    /// Whether an end of reading is old enough to become the floor.
    pub(super) fn may_rise(&self, now: Instant) -> bool {
        self.ends.front().is_some_and(|(seen, _)| now.duration_since(*seen) >= LAG)
    }

    /// No transaction that was older than the lag when that was `asked` is still writing: what is below the ends of that
    /// time is committed by now, and the next read will find it.
    pub(super) fn rise(&mut self, asked: Instant) {
        while let Some((_, end)) = self.ends.pop_front_if(|(seen, _)| asked.duration_since(*seen) >= LAG) {
            self.rising_to = Some(end);
        }
    }

    /// The position after which to read now.
    pub(super) fn floor(&mut self, now: Instant) -> i64 {
        self.read_began = now;
        if now >= self.next_sweep { 0 } else { self.floor }
    }

    /// A read from `floor` has ended at `end`, if it found anything, and found `all` that there was, or not. It raises
    /// nothing unless its rows are `gone`: below the floor they would not be seen before the next sweep. Nor when it found
    /// none: a paused relay finds none whatever is there.
    pub(super) fn read(&mut self, now: Instant, floor: i64, end: Option<i64>, all: bool, gone: bool) {
        if !gone {
            return;
        }
        if floor == 0 && (all || end >= Some(self.floor)) {
            // It came as far as the reads from the floor begin: one that ended before goes on first.
            let took = now.duration_since(self.read_began);
            self.next_sweep = now + SWEEP_EVERY.max(took * SWEEP_SHARE);
        }
        if let Some(target) = self.rising_to.filter(|target| end.is_some() && (all || end >= Some(*target))) {
            self.floor = self.floor.max(target);
            self.rising_to = None;
        }
        let Some(end) = end.filter(|end| *end > self.newest) else { return };
        self.newest = end;
        let due = self.ends.back().is_none_or(|(seen, _)| now.duration_since(*seen) >= GRAIN);
        if due {
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
        watermark.read(start, 0, Some(100), true, true);
        let soon = start + LAG / 2;
        assert!(!watermark.may_rise(soon) && watermark.floor(soon) < 50, "position 50 committed late and is read");
        watermark.read(soon, 0, Some(200), true, true);
        let later = start + Duration::from_millis(3_100);
        assert_eq!(watermark.floor(later), 0, "the sweep reads everything");
    }

    #[test]
    fn the_floor_rises_only_when_it_is_told_that_nobody_writes_below_it_and_after_one_more_read() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.floor(start);
        watermark.read(start, 0, Some(100), true, true);
        let later = start + LAG;
        watermark.floor(later);
        watermark.read(later, 0, None, true, true);
        assert!(watermark.may_rise(later));
        assert_eq!(watermark.floor(later), 0, "an old transaction may still be writing");
        watermark.rise(later);
        assert_eq!(watermark.floor(later), 0, "one more read from where it was");
        watermark.read(later, 0, Some(40), false, true);
        assert_eq!(watermark.floor(later), 0, "that read did not come as far");
        watermark.read(later, 0, None, true, true);
        assert_eq!(watermark.floor(later), 0, "that read may have been a paused relay's");
        watermark.read(later, 0, Some(40), true, true);
        assert_eq!(watermark.floor(later), 100);
    }

    #[test]
    fn what_comes_of_age_while_it_is_asked_for_old_writers_is_left_for_the_next_question() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.read(start, 0, Some(100), true, true);
        watermark.read(start + GRAIN, 0, Some(200), true, true);
        let asked = start + LAG;
        watermark.rise(asked);
        watermark.read(asked + GRAIN, 0, Some(200), true, true);
        assert_eq!(watermark.floor(asked), 100);
    }

    /// One that may rise to 100 with its next read, and the time.
    fn rising() -> (Watermark, Instant) {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.read(start, 0, Some(100), true, true);
        let later = start + LAG;
        watermark.rise(later);
        watermark.floor(later);
        (watermark, later)
    }

    #[test]
    fn a_read_whose_rows_are_still_there_raises_nothing() {
        let (mut watermark, later) = rising();
        watermark.read(later, 0, Some(100), true, false);
        assert_eq!(watermark.floor(later), 0, "what it read is read again");
        watermark.read(later, 0, Some(100), true, true);
        assert_eq!(watermark.floor(later), 100);
    }

    #[test]
    fn a_sweep_that_ended_below_the_floor_goes_on_before_anything_above_it_is_read() {
        let (mut watermark, later) = rising();
        watermark.read(later, 0, Some(100), true, true);
        let sweep = later + SWEEP_EVERY;
        assert_eq!(watermark.floor(sweep), 0);
        watermark.read(sweep, 0, Some(40), false, true);
        assert_eq!(watermark.floor(sweep), 0, "followers of what waited may lie between");
        watermark.read(sweep, 0, Some(120), false, true);
        assert_eq!(watermark.floor(sweep), 100);
    }

    #[test]
    fn slow_sweeps_become_rare() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.floor(start);
        watermark.read(start, 0, Some(7), true, true);
        let later = start + LAG;
        watermark.rise(later);
        assert_eq!(watermark.floor(later), 0);
        let done = later + Duration::from_secs(1);
        watermark.read(done, 0, Some(7), true, true);
        assert_eq!(watermark.floor(done + Duration::from_secs(19)), 7);
        assert_eq!(watermark.floor(done + Duration::from_secs(20)), 0);
    }
}
