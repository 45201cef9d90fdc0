//! When the cancellation of a valid order is excused: only when outages on its own path left it less time than an order needs.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    history::milliseconds,
    nemesis::{self, Kind, Path},
    recovery::Struck,
    verdict::Ended,
};

/// The time that an order needs in a healthy suite: far more than the 99th percentile.
const NEEDED_MS: u64 = 2_000;

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

    /// The time of the order without the outage, and whether it is excused.
    fn judged(order: &Ended, nemesis: &'static str, start_ms: u64, healed_ms: u64) -> (u64, bool) {
        let kind = nemesis::named(nemesis).map_or(Kind::Clients, |nemesis| nemesis.kind);
        let struck = Struck { nemesis, kind, start_ms, healed_ms, faults: 1, error: None };
        let cancelled = Cancelled::new(order, 1_000, &[struck], 0);
        (cancelled.well_ms, cancelled.is_excused())
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
}
