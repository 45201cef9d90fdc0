//! Recovery: the time from the healing of an outage until goodput is back.
//!
//! Goodput is the ratio of orders ended per second to orders due per second. Orders that had to be confirmed and were not do not
//! count as ended; orders that their customers cancel are left out. A delayed order counts when it ends, so goodput is above 1
//! while the suite catches up.

use std::{collections::BTreeMap, fmt};

use reports::or_dash;
use serde::Serialize;

use crate::{
    history::{Conduct, Record, milliseconds},
    nemesis::Kind,
    verdict::Ended,
};

/// Goodput is back when it reaches this value over consecutive windows together, and over each, or would with one order more.
const BACK: f64 = 0.9;
/// A window has some eight orders, and one that is due near its end may end in the next.
const AT_THE_EDGE: f64 = 1.0;
const WINDOW_MS: u64 = 500;
const STEP_MS: u64 = 100;
/// The time of good goodput that must precede a phase.
const WELL_MS: u64 = 2_000;
/// The number of consecutive good windows that make a recovery.
const WINDOWS: u64 = 3;

/// A phase as it was carried out.
#[derive(Debug, Clone, Serialize)]
pub struct Struck {
    pub nemesis: &'static str,
    pub kind: Kind,
    pub start_ms: u64,
    pub healed_ms: u64,
    pub faults: u64,
    /// An error of the nemesis itself.
    pub error: Option<String>,
}

/// When orders were due and when they ended, in milliseconds of the run, both sorted.
#[derive(Debug)]
pub struct Flow {
    due: Vec<u64>,
    ended: Vec<u64>,
    /// When each order was due, acknowledged and ended.
    lives: Vec<(u64, Option<u64>, u64)>,
}

/// Recovery, goodput and latency of one kind of fault.
#[derive(Debug, Serialize)]
pub struct KindReport {
    pub kind: Kind,
    pub phases: usize,
    pub faults: u64,
    /// The number of measurable recoveries: not interrupted by another phase, and with good goodput before.
    pub measured: usize,
    /// Those of them that were not complete at the end of the quiet time. They count with its length.
    pub unfinished: usize,
    pub recovery: Quantiles,
    /// Goodput during the phases, in percent.
    pub goodput_percent: Option<f64>,
    pub latency: Latency,
}

/// Latencies of the orders that became due in a time range.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// From the due time to the acknowledgement.
    pub answer: Quantiles,
    /// From the due time to the end.
    pub end: Quantiles,
}

/// Median and 99th percentile, if there are values.
#[derive(Debug, Serialize)]
pub struct Quantiles {
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
}

impl Flow {
    pub fn new(records: &[Record], orders: &[Ended], epoch_ms: i64) -> Self {
        let ends: BTreeMap<_, (u64, &str)> = orders
            .iter()
            .filter_map(|order| {
                let ended = u64::try_from(order.ended_ms? - epoch_ms).ok()?;
                Some((order.order_id, (ended, order.status.as_str())))
            })
            .collect();
        let counts =
            |record: &&Record| !record.wants_to_cancel && !matches!(record.conduct, Conduct::WalksAway | Conduct::Errs);
        let (mut due, mut ended, mut lives) = (Vec::new(), Vec::new(), Vec::new());
        for record in records.iter().filter(counts) {
            due.push(record.due_ms);
            if let Some((end, status)) = record.acknowledged.first().and_then(|id| ends.get(id)) {
                if record.has_to_be_confirmed && *status != "CONFIRMED" {
                    continue;
                }
                ended.push(*end);
                lives.push((record.due_ms, record.acknowledged_ms, *end));
            }
        }
        due.sort_unstable();
        ended.sort_unstable();
        Flow { due, ended, lives }
    }

    /// Goodput in this time; none when no order was due.
    pub fn goodput(&self, from_ms: u64, to_ms: u64) -> Option<f64> {
        let due = count(&self.due, from_ms, to_ms);
        (due > 0).then(|| count(&self.ended, from_ms, to_ms) as f64 / due as f64)
    }

    /// The time from `healed_ms` until goodput was back: to the end of the first of `WINDOWS` consecutive good windows, so half a
    /// second if it never dropped. None if it was not back before `until_ms`.
    pub fn recovery(&self, healed_ms: u64, until_ms: u64) -> Option<u64> {
        let good = |at: &u64| {
            let (due, ended) = (count(&self.due, *at, at + WINDOW_MS), count(&self.ended, *at, at + WINDOW_MS));
            ended as f64 + AT_THE_EDGE >= BACK * due as f64
        };
        let last = until_ms.checked_sub(WINDOWS * WINDOW_MS)?;
        let back = (healed_ms..=last)
            .step_by(STEP_MS as usize)
            .filter(|at| (0..WINDOWS).map(|n| at + n * WINDOW_MS).all(|window| good(&window)))
            .find(|at| self.goodput(*at, at + WINDOWS * WINDOW_MS).is_none_or(|goodput| goodput >= BACK))?;
        Some(back + WINDOW_MS - healed_ms)
    }

    /// The report of a kind's phases.
    pub fn report(&self, kind: Kind, struck: &[Struck], end_ms: u64) -> KindReport {
        let own: Vec<&Struck> = struck.iter().filter(|phase| phase.kind == kind).collect();
        let mut unfinished = 0;
        let mut recoveries: Vec<u64> = own
            .iter()
            .filter_map(|phase| {
                let next = quiet_until(phase, struck, end_ms)?;
                // Measurable only if the suite had recovered from the previous phase.
                let was_well = self.goodput(phase.start_ms.saturating_sub(WELL_MS), phase.start_ms)? >= BACK;
                if !was_well {
                    return None;
                }
                let recovery = self.recovery(phase.healed_ms, next);
                unfinished += usize::from(recovery.is_none());
                Some(recovery.unwrap_or(next - phase.healed_ms))
            })
            .collect();
        let goodput: Vec<f64> = own.iter().filter_map(|p| self.goodput(p.start_ms, p.healed_ms)).collect();
        let during = |due: u64| own.iter().any(|phase| (phase.start_ms..phase.healed_ms).contains(&due));
        KindReport {
            kind,
            phases: own.len(),
            faults: own.iter().map(|phase| phase.faults).sum(),
            measured: recoveries.len(),
            unfinished,
            recovery: Quantiles::of(&mut recoveries),
            goodput_percent: (!goodput.is_empty()).then(|| 100.0 * goodput.iter().sum::<f64>() / goodput.len() as f64),
            latency: self.latency(during),
        }
    }

    /// Latencies of the orders whose due time satisfies the predicate.
    pub fn latency(&self, during: impl Fn(u64) -> bool) -> Latency {
        let lives: Vec<_> = self.lives.iter().filter(|(due, ..)| during(*due)).collect();
        let mut answers: Vec<u64> =
            lives.iter().filter_map(|(due, at, _)| Some(at.as_ref()?.saturating_sub(*due))).collect();
        let mut ends: Vec<u64> = lives.iter().map(|(due, _, end)| end.saturating_sub(*due)).collect();
        Latency { answer: Quantiles::of(&mut answers), end: Quantiles::of(&mut ends) }
    }
}

impl Quantiles {
    fn of(values: &mut [u64]) -> Self {
        Quantiles { p50_ms: quantile(values, 0.5), p99_ms: quantile(values, 0.99) }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", or_dash(self.p50_ms), or_dash(self.p99_ms))
    }
}

/// The end of the quiet time after the phase; none if another phase overlapped with it, or the quiet time is too short.
fn quiet_until(phase: &Struck, struck: &[Struck], end_ms: u64) -> Option<u64> {
    // It overlaps with all other phases by design.
    let others = || struck.iter().filter(|other| !std::ptr::eq(*other, phase) && other.nemesis != "long_transaction");
    if others().any(|other| other.start_ms <= phase.healed_ms && phase.start_ms < other.healed_ms) {
        return None;
    }
    let next = others().map(|other| other.start_ms).filter(|start| *start > phase.healed_ms).min().unwrap_or(end_ms);
    // Enough for the slowest allowed recovery.
    let least_ms = milliseconds(phase.kind.recovery_target()) + WINDOWS * WINDOW_MS;
    (next >= phase.healed_ms + least_ms).then_some(next)
}

fn count(sorted: &[u64], from: u64, to: u64) -> usize {
    sorted.partition_point(|at| *at < to).saturating_sub(sorted.partition_point(|at| *at < from))
}

fn quantile(values: &mut [u64], q: f64) -> Option<u64> {
    values.sort_unstable();
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(due: &[u64], ended: &[u64]) -> Flow {
        Flow { due: due.to_vec(), ended: ended.to_vec(), lives: Vec::new() }
    }

    #[test]
    fn goodput_is_back_after_consecutive_good_windows() {
        let due: Vec<u64> = (0..10_000).step_by(10).collect();
        let ended: Vec<u64> = due.iter().copied().filter(|at| !(2_000..5_000).contains(at)).collect();
        let flow = flow(&due, &ended);
        assert_eq!(flow.recovery(0, 9_000), Some(500));
        assert_eq!(flow.recovery(1_000, 9_000), Some(4_500), "a single good window before the outage does not count");
        assert_eq!(flow.recovery(3_000, 9_000), Some(2_500));
        assert_eq!(flow.recovery(3_000, 5_400), None);
        assert_eq!(flow.goodput(2_000, 4_000), Some(0.0));
    }

    #[test]
    fn one_order_that_ends_in_the_next_window_does_not_delay_a_recovery() {
        let due: Vec<u64> = (0..10_000).step_by(100).collect();
        let without = |late: &[u64]| due.iter().copied().filter(|at| !late.contains(at)).collect::<Vec<_>>();
        assert_eq!(flow(&due, &without(&[300])).recovery(0, 9_000), Some(500));
        assert_eq!(flow(&due, &without(&[300, 400])).recovery(0, 9_000), Some(900));
        let fifths: Vec<u64> = due.iter().copied().step_by(5).collect();
        assert_eq!(flow(&due, &without(&fifths)).recovery(0, 9_000), None, "one that never ends in each window does");
        assert_eq!(flow(&[100], &[]).recovery(0, 9_000), Some(700), "what is due and does not end is not back");
    }

    #[test]
    fn recovery_is_measured_only_where_nothing_else_happens() {
        let phase = |start_ms, healed_ms| Struck {
            nemesis: "kill_service",
            kind: Kind::Service,
            start_ms,
            healed_ms,
            faults: 1,
            error: None,
        };
        let struck = [phase(0, 1_000), phase(500, 3_000), phase(9_000, 10_000)];
        assert_eq!(quiet_until(&struck[0], &struck, 20_000), None);
        assert_eq!(quiet_until(&struck[1], &struck, 20_000), None, "it overlaps with the phase before");
        assert_eq!(quiet_until(&struck[2], &struck, 20_000), Some(20_000));
        assert_eq!(quiet_until(&struck[2], &struck, 11_000), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(&mut [], 0.5), None);
        assert_eq!(quantile(&mut [3, 1, 2], 0.5), Some(2));
        assert_eq!(quantile(&mut [3, 1, 2], 0.99), Some(3));
    }
}
