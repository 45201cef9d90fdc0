//! When the cancellation of a valid order is excused: only when outages on its own path left it less time than an order needs.
//! That of an orchestrated order is excused by any outage during its life.

use std::collections::HashMap;

use serde::Serialize;
use uuid::Uuid;

use crate::{
    history::{Record, milliseconds},
    nemesis::{self, Kind, Path},
    recovery::Struck,
    verdict::Ended,
};

/// The time that an order needs in a healthy suite: far more than the 99th percentile.
const NEEDED_MS: u64 = 2_000;
/// The longest recovery target, with a margin. Also longer than a command is repeated for, and a breaker stays open after that.
const LONGEST_RECOVERY_MS: u64 = 20_000;

/// An order that had to be confirmed and was cancelled.
#[derive(Debug, Clone, Serialize)]
pub struct Cancelled {
    pub order_id: Uuid,
    pub started_ms: u64,
    /// The step at which its saga failed.
    pub at: String,
    /// The time before its deadline without an outage, or a recovery, on its path.
    pub well_ms: u64,
    /// The nemeses of these outages.
    pub during: Vec<&'static str>,
}

impl Cancelled {
    /// `due_ms`: the order's due time by this machine's clock, the only reliable one while the database's clock is wrong.
    pub(crate) fn new(order: &Ended, due_ms: u64, struck: &[Struck], epoch_ms: i64) -> Self {
        let (order_id, at) = (order.order_id, order.failed_at_step.clone().unwrap_or_default());
        if let Some(phase) = struck.iter().find(|phase| is_wrong_clock(phase, due_ms)) {
            return Cancelled { order_id, started_ms: due_ms, at, well_ms: 0, during: vec![phase.nemesis] };
        }
        let since = |at: Option<i64>| at.and_then(|at| u64::try_from(at - epoch_ms).ok());
        let started_ms = since(order.started_ms).unwrap_or(0);
        let end = since(order.deadline_ms).unwrap_or(started_ms);
        // The order waits for the charge from its reservation until its payment.
        let reserved = since(order.reserved_ms).unwrap_or(end).min(end);
        let paid = since(order.paid_ms).unwrap_or(end).min(end);
        let mut outages: Vec<(u64, u64, &'static str)> = struck
            .iter()
            .filter_map(|phase| {
                let (from, to) = match nemesis::named(phase.nemesis)?.path {
                    Path::Whole => (started_ms, end),
                    Path::Charge => (reserved, paid),
                    Path::Beside => return None,
                };
                let over = phase.healed_ms + milliseconds(phase.kind.recovery_target());
                let (from, to) = (phase.start_ms.max(from), over.min(to));
                (from < to).then_some((from, to, phase.nemesis))
            })
            .collect();
        outages.sort_unstable();
        let (mut well_ms, mut over) = (0, started_ms);
        for (from, to, _) in &outages {
            well_ms += from.saturating_sub(over);
            over = over.max(*to);
        }
        well_ms += end.saturating_sub(over);
        let during = outages.into_iter().map(|(.., nemesis)| nemesis).collect();
        Cancelled { order_id, started_ms, at, well_ms, during }
    }

    /// An outage can only delay an order; it cannot excuse a refusal.
    pub(crate) fn is_excused(&self) -> bool {
        self.at == contracts::order_fulfillment::DETECT_TIMEOUT.name && self.well_ms < NEEDED_MS
    }
}

/// The orchestrated orders that have to be confirmed: those with no outage, or recovery from one, during their lives. Any strike
/// counts, also one beside the path of choreographed orders: what delays an answer beyond its step's limit cancels the order.
pub(crate) fn undisturbed<'o>(
    records: &[Record],
    orders: &'o [Ended],
    struck: &[Struck],
    epoch_ms: i64,
) -> Vec<&'o Ended> {
    let good = records.iter().filter(|record| record.has_to_be_confirmed_if_undisturbed);
    let good: HashMap<Uuid, &Record> =
        good.filter_map(|record| Some((*record.acknowledged.first()?, record))).collect();
    let is_undisturbed = |order: &&Ended| {
        good.get(&order.order_id).is_some_and(|record| {
            // Unknown without an end, or by a clock that was behind. A clock that was ahead only excuses more.
            let ended = order.ended_ms.and_then(|at| u64::try_from(at - epoch_ms).ok()).unwrap_or(u64::MAX);
            !is_disturbed(struck, record.due_ms, ended.max(record.acknowledged_ms.unwrap_or(u64::MAX)))
        })
    };
    orders.iter().filter(is_undisturbed).collect()
}

/// Whether an outage, or the recovery from one, overlaps with the time from `from` to `to`.
pub(crate) fn is_disturbed(struck: &[Struck], from: u64, to: u64) -> bool {
    struck.iter().any(|phase| phase.start_ms < to && from < phase.healed_ms + LONGEST_RECOVERY_MS)
}

/// Whether the clock that decides about deadlines was wrong around this time.
fn is_wrong_clock(phase: &Struck, due_ms: u64) -> bool {
    let over = phase.healed_ms + milliseconds(phase.kind.recovery_target());
    let is_deciding = nemesis::named(phase.nemesis).is_some_and(|nemesis| nemesis.path == Path::Whole);
    phase.kind == Kind::Clock && is_deciding && phase.start_ms < due_ms + NEEDED_MS && due_ms < over
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Placed after a second, with 20 s for it.
    fn timed_out() -> Ended {
        Ended {
            failed_at_step: Some("detect_timeout".to_owned()),
            started_ms: Some(1_000),
            deadline_ms: Some(21_000),
            reserved_ms: Some(2_000),
            ..Ended::default()
        }
    }

    fn struck(nemesis: &'static str, start_ms: u64, healed_ms: u64) -> Struck {
        let kind = nemesis::named(nemesis).map_or(Kind::Clients, |nemesis| nemesis.kind);
        Struck { nemesis, kind, start_ms, healed_ms, faults: 1, error: None }
    }

    /// The time of the order without the outage, and whether it is excused.
    fn judged(order: &Ended, nemesis: &'static str, start_ms: u64, healed_ms: u64) -> (u64, bool) {
        let cancelled = Cancelled::new(order, 1_000, &[struck(nemesis, start_ms, healed_ms)], 0);
        (cancelled.well_ms, cancelled.is_excused())
    }

    /// Whether an orchestrated order has to be confirmed, with a strike from 30 to 40 s.
    fn has_to_be_confirmed(nemesis: &'static str, due_ms: u64, ended_ms: Option<i64>) -> bool {
        let order = Ended { ended_ms, ..Ended::default() };
        let record = Record {
            due_ms,
            acknowledged: vec![order.order_id],
            acknowledged_ms: Some(due_ms),
            has_to_be_confirmed_if_undisturbed: true,
            ..Record::default()
        };
        !undisturbed(&[record], &[order], &[struck(nemesis, 30_000, 40_000)], 0).is_empty()
    }

    #[test]
    fn an_outage_excuses_an_order_without_enough_time() {
        // 1 s before the outage, and 0.5 s after the recovery.
        assert_eq!(judged(&timed_out(), "kill_nats", 2_000, 15_500), (1_500, true));
        assert_eq!(judged(&timed_out(), "kill_nats", 2_000, 10_000), (7_000, false));
    }

    #[test]
    fn only_outages_on_its_own_path_excuse_an_order() {
        assert!(judged(&timed_out(), "kill_gateway", 1_000, 30_000).1);
        let paid = Ended { paid_ms: Some(2_500), ..timed_out() };
        assert_eq!(judged(&paid, "kill_gateway", 1_000, 30_000).0, 19_500);
        for nemesis in ["duplicate_events", "unruly_clients", "inventory_drop", "long_transaction"] {
            assert_eq!(judged(&timed_out(), nemesis, 0, 30_000).0, 20_000, "{nemesis}");
        }
    }

    #[test]
    fn no_outage_excuses_a_refusal() {
        let refused = Ended { failed_at_step: Some("process_payment".to_owned()), ..timed_out() };
        assert!(!judged(&refused, "stop_postgres", 0, 30_000).1);
    }

    #[test]
    fn any_outage_during_its_life_excuses_an_orchestrated_order() {
        for nemesis in ["kill_service", "kill_gateway", "inventory_drop"] {
            let judged = |due_ms, ended_ms| has_to_be_confirmed(nemesis, due_ms, Some(ended_ms));
            assert!(judged(29_000, 29_900), "{nemesis}: it ended before");
            assert!(!judged(29_000, 45_000), "{nemesis}: it began before");
            assert!(!judged(35_000, 35_100) && !judged(59_000, 59_100), "{nemesis}: it began during the recovery");
            assert!(judged(60_000, 75_000), "{nemesis}: it began afterwards");
        }
    }

    #[test]
    fn an_orchestrated_order_lives_on_when_its_end_is_unknown() {
        assert!(!has_to_be_confirmed("stop_postgres", 1_000, None));
        assert!(!has_to_be_confirmed("database_clock_behind", 29_000, Some(30_500 - 3_600_000)));
        assert!(has_to_be_confirmed("stop_postgres", 60_000, None), "nothing was broken after it began");
    }
}
