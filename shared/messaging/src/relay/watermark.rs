//! The position from which the relay reads. A row with a lower position may commit after one with a higher position, so a cursor
//! would miss rows; but reading from the start each time would scan the index entries of all rows that vacuum has not removed
//! yet. So the relay reads from the end of a moment ago, provided that no open transaction can still write below it, and
//! regularly sweeps all rows.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How far behind the newest row the relay reads.
pub(super) const LAG: Duration = Duration::from_millis(400);
/// The interval at which ends of reads are stored, and at which the floor rises.
const GRAIN: Duration = Duration::from_millis(100);
/// The shortest interval between sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The interval between sweeps is at least this multiple of a sweep's duration: an old snapshot, which keeps dead rows, makes
/// sweeps slow.
const SWEEP_SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Watermark {
    /// Ends of reads that are younger than the lag, oldest first.
    ends: VecDeque<(Instant, i64)>,
    /// The highest position seen.
    newest: i64,
    floor: i64,
    /// The next floor, after one more read from the present one.
    rising_to: Option<i64>,
    next_sweep: Instant,
    read_began: Instant,
}

impl Watermark {
    /// Starts with a sweep.
    pub(super) fn new(now: Instant) -> Self {
        Watermark { ends: VecDeque::new(), newest: 0, floor: 0, rising_to: None, next_sweep: now, read_began: now }
    }

    /// Whether the end of a read is old enough to become the floor.
    pub(super) fn may_rise(&self, now: Instant) -> bool {
        self.ends.front().is_some_and(|(seen, _)| now.duration_since(*seen) >= LAG)
    }

    /// Call this when no transaction that was older than the lag at time `asked` is still writing: all rows below the ends of
    /// that time are committed, and the next read finds them.
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

    /// Records a read from `floor` that ended at `end`, if it found rows, and found `all` rows or not. It raises the floor only
    /// if its rows are `gone`, because below the floor they would not be seen before the next sweep, and only if it found rows,
    /// because a paused relay finds none.
    pub(super) fn read(&mut self, now: Instant, floor: i64, end: Option<i64>, all: bool, gone: bool) {
        if !gone {
            return;
        }
        if floor == 0 && (all || end >= Some(self.floor)) {
            // The sweep has reached the floor. One that ended below it continues first.
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
    fn a_late_commit_is_read_within_the_lag_or_by_the_sweep() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        assert_eq!(watermark.floor(start), 0, "it starts with a sweep");
        watermark.read(start, 0, Some(100), true, true);
        let soon = start + LAG / 2;
        assert!(!watermark.may_rise(soon) && watermark.floor(soon) < 50, "position 50 committed late and is read");
        watermark.read(soon, 0, Some(200), true, true);
        let later = start + Duration::from_millis(3_100);
        assert_eq!(watermark.floor(later), 0, "the sweep reads everything");
    }

    #[test]
    fn the_floor_rises_after_old_writers_ended_and_one_read() {
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
        assert_eq!(watermark.floor(later), 0, "one more read from the old floor");
        watermark.read(later, 0, Some(40), false, true);
        assert_eq!(watermark.floor(later), 0, "that read did not come as far");
        watermark.read(later, 0, None, true, true);
        assert_eq!(watermark.floor(later), 0, "a paused relay's read finds nothing");
        watermark.read(later, 0, Some(40), true, true);
        assert_eq!(watermark.floor(later), 100);
    }

    #[test]
    fn ends_that_age_during_the_query_wait_for_the_next_one() {
        let start = Instant::now();
        let mut watermark = Watermark::new(start);
        watermark.read(start, 0, Some(100), true, true);
        watermark.read(start + GRAIN, 0, Some(200), true, true);
        let asked = start + LAG;
        watermark.rise(asked);
        watermark.read(asked + GRAIN, 0, Some(200), true, true);
        assert_eq!(watermark.floor(asked), 100);
    }

    /// A watermark that may rise to 100 with its next read, and the time.
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
    fn a_read_whose_rows_remain_raises_nothing() {
        let (mut watermark, later) = rising();
        watermark.read(later, 0, Some(100), true, false);
        assert_eq!(watermark.floor(later), 0, "the rows are read again");
        watermark.read(later, 0, Some(100), true, true);
        assert_eq!(watermark.floor(later), 100);
    }

    #[test]
    fn an_unfinished_sweep_continues_before_later_rows() {
        let (mut watermark, later) = rising();
        watermark.read(later, 0, Some(100), true, true);
        let sweep = later + SWEEP_EVERY;
        assert_eq!(watermark.floor(sweep), 0);
        watermark.read(sweep, 0, Some(40), false, true);
        assert_eq!(watermark.floor(sweep), 0, "later events of a delayed aggregate may lie between");
        watermark.read(sweep, 0, Some(120), false, true);
        assert_eq!(watermark.floor(sweep), 100);
    }

    #[test]
    fn slow_sweeps_become_rare() {
        let (mut watermark, later) = rising();
        let done = later + Duration::from_secs(1);
        watermark.read(done, 0, Some(100), true, true);
        assert_eq!(watermark.floor(done + Duration::from_secs(19)), 100);
        assert_eq!(watermark.floor(done + Duration::from_secs(20)), 0);
    }
}
