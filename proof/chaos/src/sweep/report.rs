//! What the sweep found, as JSON and as a table for people.

use std::{fmt, time::Duration};

use faults::FaultPoint;
use serde::Serialize;

use super::Case;

/// One crash and what became of it.
#[derive(Debug, Serialize)]
pub struct CaseReport {
    pub point: &'static str,
    pub hit: u32,
    /// Which service's process crashed.
    pub crashed: Option<String>,
    /// The suite wrote the crash down before it acted.
    pub hit_recorded: bool,
    pub orders: u32,
    /// From the restart until every order had ended and the audit was done.
    pub recovered_ms: u128,
    pub took_ms: u128,
    pub failure: Option<String>,
}

/// All of them.
#[derive(Debug, Serialize)]
pub struct SweepReport {
    pub points: usize,
    pub points_hit: usize,
    /// Points at which no process crashed.
    pub unhit: Vec<&'static str>,
    pub orders: u32,
    pub took_seconds: u64,
    pub cases: Vec<CaseReport>,
}

impl CaseReport {
    pub(super) fn new(case: &Case) -> Self {
        CaseReport {
            point: case.point.as_str(),
            hit: case.hit,
            crashed: None,
            hit_recorded: false,
            orders: 0,
            recovered_ms: 0,
            took_ms: 0,
            failure: None,
        }
    }
}

impl SweepReport {
    pub(super) fn new(points: &[FaultPoint], cases: Vec<CaseReport>, took: Duration) -> Self {
        let hit = |point: &FaultPoint| cases.iter().any(|case| case.point == point.as_str() && case.crashed.is_some());
        let unhit: Vec<&'static str> = points.iter().filter(|point| !hit(point)).map(|point| point.as_str()).collect();
        SweepReport {
            points: points.len(),
            points_hit: points.len() - unhit.len(),
            unhit,
            orders: cases.iter().map(|case| case.orders).sum(),
            took_seconds: took.as_secs(),
            cases,
        }
    }

    /// Every point was hit, and every case ended with a clean audit.
    pub fn passed(&self) -> bool {
        self.unhit.is_empty() && self.cases.iter().all(|case| case.failure.is_none())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crashed = self.crashed.as_deref().unwrap_or("nobody");
        let verdict = self.failure.as_deref().unwrap_or("ok");
        write!(
            f,
            "{:32} {:>4}  {crashed:10} {:>4} orders  recovered in {:>5} ms  {verdict}",
            self.point, self.hit, self.orders, self.recovered_ms
        )
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.cases.iter().filter(|case| case.failure.is_some()).count();
        writeln!(
            f,
            "sweep: {} of {} points hit, {} crashes, {failed} failed, {} orders, {} s",
            self.points_hit,
            self.points,
            self.cases.len(),
            self.orders,
            self.took_seconds
        )?;
        self.unhit.iter().try_for_each(|point| writeln!(f, "never hit: {point}"))
    }
}
