//! The report of a sweep, as JSON and as a table.

use std::{fmt, time::Duration};

use faults::FaultPoint;
use serde::Serialize;

use super::{Case, Selection, plan};

/// One crash and its outcome.
#[derive(Debug, Default, Serialize)]
pub struct CaseReport {
    pub point: &'static str,
    /// The step in which it must happen, if any.
    pub step: Option<String>,
    pub hit: u32,
    /// The service of the process.
    pub service: &'static str,
    /// The crash is in the journal of fault hits, with this point and step.
    pub hit_recorded: bool,
    /// Orders that were accepted during the case.
    pub orders: usize,
    /// From the restart until the process was ready again.
    pub ready_ms: u128,
    pub took_ms: u128,
    pub failure: Option<String>,
}

/// The outcome of a group of crashes.
#[derive(Debug, Serialize)]
pub struct GroupReport {
    pub crashes: usize,
    /// All orders that were accepted since the sweep began: each must exist and have ended.
    pub orders: usize,
    /// The time until the suite was at rest and audited.
    pub settled_ms: u128,
    pub failure: Option<String>,
}

/// The whole sweep.
#[derive(Debug, Serialize)]
pub struct SweepReport {
    pub points: usize,
    pub points_hit: usize,
    /// Pairs of a point and a step that it knows.
    pub steps: usize,
    pub steps_hit: usize,
    /// Points, and points in a step, at which no process crashed.
    pub unhit: Vec<String>,
    /// Points in a step at which none can crash, and why.
    pub impossible: Vec<String>,
    /// Orders that were accepted.
    pub orders: usize,
    pub took_seconds: u64,
    pub cases: Vec<CaseReport>,
    pub groups: Vec<GroupReport>,
}

impl CaseReport {
    pub(super) fn new(case: &Case) -> Self {
        CaseReport {
            point: case.point.as_str(),
            step: case.step.map(plan::label),
            hit: case.hit,
            service: case.service.0,
            ..CaseReport::default()
        }
    }
}

impl SweepReport {
    pub(super) fn new(
        selection: &Selection<'_>,
        cases: Vec<CaseReport>,
        groups: Vec<GroupReport>,
        took: Duration,
    ) -> Self {
        let is_hit = |(point, step): &(FaultPoint, Option<String>)| {
            let of_this = |case: &CaseReport| case.point == point.as_str() && (step.is_none() || case.step == *step);
            cases.iter().any(|case| of_this(case) && case.hit_recorded)
        };
        let points: Vec<FaultPoint> = selection.points().collect();
        let places = points.iter().flat_map(|point| {
            let steps = selection.steps_at(*point).map(|step| Some(plan::label(step)));
            [None].into_iter().chain(steps).map(move |step| (*point, step))
        });
        let (hit, unhit): (Vec<_>, Vec<_>) = places.partition(is_hit);
        let points_hit = hit.iter().filter(|(_, step)| step.is_none()).count();
        let impossible = points.iter().filter(|point| point.knows_step()).flat_map(|point| {
            plan::steps().filter(move |step| selection.selects(step)).filter_map(move |step| {
                let why = plan::impossible(*point, step)?;
                Some(format!("{}: {why}", place(point.as_str(), Some(&plan::label(step)))))
            })
        });
        SweepReport {
            points: points.len(),
            points_hit,
            steps: hit.len() + unhit.len() - points.len(),
            steps_hit: hit.len() - points_hit,
            unhit: unhit.iter().map(|(point, step)| place(point.as_str(), step.as_deref())).collect(),
            impossible: impossible.collect(),
            orders: cases.iter().map(|case| case.orders).sum(),
            took_seconds: took.as_secs(),
            cases,
            groups,
        }
    }

    /// Every point was hit, in every step; every process became ready again; every audit was clean.
    pub fn passed(&self) -> bool {
        self.unhit.is_empty() && self.failed() == 0
    }

    /// The number of failed crashes and audits.
    fn failed(&self) -> usize {
        let cases = self.cases.iter().filter(|case| case.failure.is_some()).count();
        cases + self.groups.iter().filter(|group| group.failure.is_some()).count()
    }
}

fn place(point: &str, step: Option<&str>) -> String {
    step.map_or_else(|| point.to_owned(), |step| format!("{point} in {step}"))
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseReport { point, step, hit, service, orders, ready_ms, .. } = self;
        let (place, verdict) = (place(point, step.as_deref()), self.failure.as_deref().unwrap_or("ok"));
        write!(f, "{place:62} {hit:>2}  {service:9} {orders:>3} orders  ready again in {ready_ms:>5} ms  {verdict}")
    }
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupReport { crashes, orders, settled_ms, failure } = self;
        let verdict = failure.as_deref().unwrap_or("ok");
        write!(f, "after {crashes} crashes: {orders} orders audited in {settled_ms} ms  {verdict}")
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unhit.iter().try_for_each(|place| writeln!(f, "never hit: {place}"))?;
        writeln!(
            f,
            "sweep: {} of {} points hit, {} of {} in steps, {} crashes, {} audits, {} failed, {} orders, {} s",
            self.points_hit,
            self.points,
            self.steps_hit,
            self.steps,
            self.cases.len(),
            self.groups.len(),
            self.failed(),
            self.orders,
            self.took_seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_hit_fails_the_sweep() {
        let selection = Selection { points: &[FaultPoint::InStep], hits: &[1], steps: &[] };
        let report = |cases| SweepReport::new(&selection, cases, Vec::new(), Duration::ZERO);
        let hit = |case: &Case| CaseReport { hit_recorded: true, ..CaseReport::new(case) };
        let mut cases: Vec<CaseReport> = plan::groups(&selection).concat().iter().map(hit).collect();
        assert!(report(Vec::new()).unhit.contains(&"in_step".to_owned()));
        let forgotten = cases.pop().and_then(|case| case.step).expect("a step");
        let found = report(cases);
        assert_eq!((found.unhit.as_slice(), found.points_hit), ([format!("in_step in {forgotten}")].as_slice(), 1));
        assert!(!found.passed());
    }
}
