//! The answers that clients got: orders accepted, or cancelled. They must hold despite all crashes, and an order with stock and a
//! good card must be confirmed.

use std::collections::{HashMap, HashSet};

use sqlx::PgPool;
use uuid::Uuid;

use super::load::OrderKind;
use crate::verdict::{Ended, ended_orders};

/// The acknowledged orders and cancellations.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// 201, or 200 for a repeat.
    pub(super) accepted: Vec<(Uuid, OrderKind)>,
    pub(super) cancelled: HashSet<Uuid>,
}

impl Answers {
    pub(super) fn add(&mut self, more: Answers) {
        self.accepted.extend(more.accepted);
        self.cancelled.extend(more.cancelled);
    }

    /// The answers that do not hold once the suite is at rest.
    pub(super) async fn broken_promises(&self, pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
        let found: HashMap<Uuid, Ended> =
            ended_orders(pool).await?.into_iter().map(|order| (order.order_id, order)).collect();
        let broken = |(order_id, kind): &(Uuid, OrderKind)| {
            let order = found.get(order_id);
            let status = order.map(|order| order.status.as_str());
            let promise = broken_promise(status, *kind, self.cancelled.contains(order_id))?;
            let failed = order.and_then(|order| order.failed_at_step.as_ref());
            Some(format!("order {order_id} {promise}{}", failed.map(|step| format!(" at {step}")).unwrap_or_default()))
        };
        Ok(self.accepted.iter().filter_map(broken).collect())
    }
}

fn broken_promise(status: Option<&str>, kind: OrderKind, cancellation_acknowledged: bool) -> Option<String> {
    let may_be = |end| match kind {
        _ if cancellation_acknowledged => end == "CANCELLED",
        OrderKind::TooMuch | OrderKind::Declined => end == "CANCELLED",
        // Its deadline may not have been moved, and a charge may come before the detection.
        OrderKind::Slow => true,
        OrderKind::Plain | OrderKind::Flaky | OrderKind::Hasty | OrderKind::Regretted => end == "CONFIRMED",
    };
    match status {
        None => Some("was accepted and is missing".to_owned()),
        Some(end @ ("CONFIRMED" | "CANCELLED")) if may_be(end) => None,
        Some("CONFIRMED") if cancellation_acknowledged => {
            Some("is confirmed, although its cancellation was acknowledged".to_owned())
        }
        Some(end @ ("CONFIRMED" | "CANCELLED")) => Some(format!("({kind:?}) has ended as {end}")),
        Some(status) => Some(format!("was accepted and stays {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_order_must_exist_with_the_acknowledged_end() {
        let broken = |status, cancellation_acknowledged| {
            broken_promise(status, OrderKind::Plain, cancellation_acknowledged).is_some()
        };
        assert!(broken(None, false) && broken(Some("PENDING"), false) && broken(Some("CONFIRMED"), true));
        assert!(!broken(Some("CONFIRMED"), false) && !broken(Some("CANCELLED"), true));
    }

    #[test]
    fn only_orders_with_stock_and_a_good_card_are_confirmed() {
        let ends_as = |kind, end| broken_promise(Some(end), kind, false).is_none();
        for kind in [OrderKind::Plain, OrderKind::Flaky, OrderKind::Regretted] {
            assert!(ends_as(kind, "CONFIRMED") && !ends_as(kind, "CANCELLED"), "{kind:?}");
        }
        for kind in [OrderKind::TooMuch, OrderKind::Declined] {
            assert!(!ends_as(kind, "CONFIRMED") && ends_as(kind, "CANCELLED"), "{kind:?}");
        }
    }
}
