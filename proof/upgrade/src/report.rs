//! The report of an upgrade, as JSON and as a table, and whether it passed.

use std::fmt;

use chaos::{
    report::by_kind,
    verdict::{Ended, Violations},
};
use reports::{Table, or_dash, write_failures};
use serde::Serialize;
use time::OffsetDateTime;

use crate::evidence::Evidence;

/// How many failures of a kind are listed.
const EXAMPLES: usize = 10;

/// A time with one mixture of the builds, by the database's clock.
#[derive(Debug, Clone)]
pub struct Phase {
    pub name: &'static str,
    pub began: OffsetDateTime,
    pub ended: OffsetDateTime,
}

/// The outcome of the orders that were placed in a phase.
#[derive(Debug, Serialize)]
pub struct PhaseReport {
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
    /// Idempotency keys that clients used.
    pub orders: usize,
    /// Valid orders that were cancelled.
    pub cancelled: Vec<String>,
    pub findings: Violations,
    /// Violations of the conservation of money and stock.
    pub drift: Vec<String>,
    /// Invariants that the final audit found violated.
    pub audit: Vec<String>,
    pub evidence: Evidence,
    pub phases: Vec<PhaseReport>,
}

impl Phase {
    /// The outcome of the orders that began in it.
    pub fn report(&self, orders: &[Ended]) -> PhaseReport {
        let ms = |at: OffsetDateTime| i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let within = ms(self.began)..ms(self.ended);
        let begun = || orders.iter().filter(|order| order.started_ms.is_some_and(|at| within.contains(&at)));
        let mut took: Vec<i64> = begun().filter_map(|order| Some(order.ended_ms? - order.started_ms?)).collect();
        took.sort_unstable();
        PhaseReport {
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
    /// All failures of the run, in sentences.
    pub fn failures(&self) -> Vec<String> {
        let gaps = self.evidence.gaps();
        let others =
            [("cancelled", &self.cancelled), ("drift", &self.drift), ("audit", &self.audit), ("proves nothing", &gaps)];
        by_kind(self.findings.kinds().into_iter().chain(others), EXAMPLES)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence {
            in_new_version, handed_back, brought_up, with_new_field, new_step, given_up, passed_over, ..
        } = self.evidence;
        let mut phases = Table::new(["phase", "seconds", "orders", "confirmed", "median ms", "slowest ms"]);
        for phase in &self.phases {
            phases.row([
                phase.name.to_owned(),
                format!("{:.1}", phase.seconds),
                phase.orders.to_string(),
                phase.confirmed.to_string(),
                or_dash(phase.median_ms),
                or_dash(phase.slowest_ms),
            ]);
        }
        writeln!(
            f,
            "{phases}in the new version {in_new_version}, handed back {handed_back}; old ones brought up {brought_up}; \
            with the new field {with_new_field}; taken by the new step {new_step}, left owed and given up {given_up}, \
            passed over {passed_over}"
        )?;
        let verdict = write_failures(f, &self.failures())?;
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
