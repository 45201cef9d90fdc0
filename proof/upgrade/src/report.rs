//! What came of it, as JSON and as a table for people, and whether that is good enough.

use std::fmt;

use chaos::{
    report::{by_kind, ms},
    verdict::{Ended, Findings},
};
use serde::Serialize;
use time::OffsetDateTime;

use crate::evidence::Evidence;

/// How many failures of a kind are listed.
const EXAMPLES: usize = 10;

/// A time in which the builds were mixed in one way, by the database's clock.
#[derive(Debug, Clone)]
pub struct Phase {
    pub name: &'static str,
    pub began: OffsetDateTime,
    pub ended: OffsetDateTime,
}

/// What became of the orders that were placed in a phase.
#[derive(Debug, Serialize)]
pub struct Told {
    pub name: &'static str,
    pub seconds: f64,
    pub orders: usize,
    pub confirmed: usize,
    /// From an order's start to its saga's end.
    pub median_ms: Option<i64>,
    pub slowest_ms: Option<i64>,
}

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub rate: u32,
    pub seconds: f64,
    /// Keys that clients ordered under.
    pub orders: usize,
    /// Orders that nothing spoke against, and that were cancelled.
    pub cancelled: Vec<String>,
    pub findings: Findings,
    /// Money and stock, as they were seen to be wrong.
    pub drift: Vec<String>,
    /// Invariants that the audit found violated in the end.
    pub audit: Vec<String>,
    pub evidence: Evidence,
    pub phases: Vec<Told>,
}

impl Phase {
    /// What became of the orders that began in it.
    pub fn told(&self, orders: &[Ended]) -> Told {
        let ms = |at: OffsetDateTime| i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let within = ms(self.began)..ms(self.ended);
        let begun = || orders.iter().filter(|order| order.started_ms.is_some_and(|at| within.contains(&at)));
        let mut took: Vec<i64> = begun().filter_map(|order| Some(order.ended_ms? - order.started_ms?)).collect();
        took.sort_unstable();
        Told {
            name: self.name,
            seconds: (self.ended - self.began).as_seconds_f64(),
            orders: begun().count(),
            confirmed: begun().filter(|order| order.status == "CONFIRMED").count(),
            median_ms: took.get(took.len() / 2).copied(),
            slowest_ms: took.last().copied(),
        }
    }
}

impl Report {
    /// Everything that makes the run a failure, in sentences.
    pub fn failures(&self) -> Vec<String> {
        let gaps = self.evidence.gaps();
        let others =
            [("cancelled", &self.cancelled), ("drift", &self.drift), ("audit", &self.audit), ("proves nothing", &gaps)];
        by_kind(self.findings.kinds().into_iter().chain(others), EXAMPLES)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence { in_new_version, handed_back, brought_up, with_new_field, new_step, .. } = self.evidence;
        writeln!(
            f,
            "{:32} {:>7} {:>7} {:>10} {:>10} {:>11}",
            "phase", "seconds", "orders", "confirmed", "median ms", "slowest ms"
        )?;
        for told in &self.phases {
            writeln!(
                f,
                "{:32} {:>7.1} {:>7} {:>10} {:>10} {:>11}",
                told.name,
                told.seconds,
                told.orders,
                told.confirmed,
                ms(told.median_ms),
                ms(told.slowest_ms)
            )?;
        }
        writeln!(
            f,
            "in the new version {in_new_version}, handed back {handed_back}; old ones brought up {brought_up}; \
            with the new field {with_new_field}; taken by the new step {new_step}"
        )?;
        let failures = self.failures();
        failures.iter().try_for_each(|failure| writeln!(f, "FAILED  {failure}"))?;
        let verdict = if failures.is_empty() { "passed" } else { "FAILED" };
        writeln!(
            f,
            "upgrade: {verdict}, {} orders in {:.0} s, lost {}, doubled {}, dead letters {}, good orders cancelled {}",
            self.orders,
            self.seconds,
            self.findings.lost.len(),
            self.findings.doubled.len(),
            self.findings.dead_letters.len(),
            self.cancelled.len()
        )
    }
}
