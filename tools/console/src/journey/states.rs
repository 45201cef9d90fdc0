//! The states of saga, order, stock and payment after each entry of the journal. They follow from the events alone, so a test can
//! compare the last ones with the tables.

use contracts::order_fulfillment::{
    OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, PaymentProcessed, PaymentRefunded, StockReleased,
    StockReservationFailed, StockReserved,
};
use saga::Event;
use serde::Serialize;

use super::step_of;

/// What is known after an entry; `None` where the participant has not answered yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct States {
    pub saga: String,
    pub order: Option<&'static str>,
    pub stock: Option<&'static str>,
    pub payment: Option<&'static str>,
}

impl States {
    /// The states after an entry with this event, which left the saga in this status. An event that was skipped changes nothing.
    #[must_use]
    pub fn after(&self, event_type: &str, saga: &str, skipped: bool) -> States {
        let mut states = States { saga: saga.to_owned(), ..self.clone() };
        if skipped {
            return states;
        }
        let is = |of: saga::EventType| is_event(event_type, of);
        if is(OrderCreated::TYPE) {
            states.order = Some("PENDING");
        } else if is(OrderConfirmed::TYPE) {
            states.order = Some("CONFIRMED");
        } else if is(OrderCancelled::TYPE) {
            states.order = Some("CANCELLED");
        } else if is(StockReserved::TYPE) {
            states.stock = Some("RESERVED");
        } else if is(StockReservationFailed::TYPE) {
            states.stock = Some("REFUSED");
        } else if is(StockReleased::TYPE) {
            states.stock =
                Some(if self.stock == Some("RESERVED") { "RELEASED" } else { self.stock.unwrap_or("TOMBSTONE") });
        } else if is(PaymentProcessed::TYPE) {
            states.payment = Some("CAPTURED");
        } else if is(PaymentFailed::TYPE) {
            states.payment = Some("DECLINED");
        } else if is(PaymentRefunded::TYPE) {
            states.payment = Some(match self.payment {
                Some("CAPTURED") => "REFUNDED",
                Some(other) => other,
                None => "VOIDED",
            });
        }
        states
    }
}

/// What the entry of a coordinated step, which publishes nothing, stands for: the event that the choreographed step of that name
/// publishes. Where a step has failed because it was not answered, its undo says what it had done.
pub(super) fn fact(event_type: &str, step: &str, status: &str) -> String {
    if event_type != "command" {
        return event_type.to_owned();
    }
    let of_step = step_of(step).and_then(|twin| twin.emits.iter().find(|event| event.refusal == (status == "FAILED")));
    match of_step {
        Some(event) => event.wire_name(),
        None if step.starts_with("cancel_order") => OrderCancelled::TYPE.wire_name(),
        None => event_type.to_owned(),
    }
}

/// Whether an event's name on the wire is this type's, in any version.
pub(super) fn is_event(wire_name: &str, of: saga::EventType) -> bool {
    wire_name.rsplit_once(".v").map_or(wire_name, |(name, _)| name) == of.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[saga::EventType]) -> States {
        events.iter().fold(States::default(), |states, event| states.after(&event.wire_name(), "IN_PROGRESS", false))
    }

    #[test]
    fn a_confirmed_order_holds_its_stock_and_its_payment() {
        let states = after(&[OrderCreated::TYPE, StockReserved::TYPE, PaymentProcessed::TYPE, OrderConfirmed::TYPE]);
        assert_eq!(
            (states.order, states.stock, states.payment),
            (Some("CONFIRMED"), Some("RESERVED"), Some("CAPTURED"))
        );
    }

    #[test]
    fn what_was_never_done_is_not_undone() {
        let cancelled = [OrderCreated::TYPE, StockReservationFailed::TYPE, OrderCancelled::TYPE];
        let states = after(&[&cancelled[..], &[StockReleased::TYPE, PaymentRefunded::TYPE]].concat());
        assert_eq!((states.order, states.stock, states.payment), (Some("CANCELLED"), Some("REFUSED"), Some("VOIDED")));
        let declined = [OrderCreated::TYPE, StockReserved::TYPE, PaymentFailed::TYPE, OrderCancelled::TYPE];
        let states = after(&[&declined[..], &[StockReleased::TYPE, PaymentRefunded::TYPE]].concat());
        assert_eq!((states.stock, states.payment), (Some("RELEASED"), Some("DECLINED")));
    }

    #[test]
    fn a_coordinated_step_stands_for_the_event_of_its_twin() {
        let of = |step, status| fact("command", step, status);
        assert_eq!(of("reserve_stock", "COMPLETED"), StockReserved::TYPE.wire_name());
        assert_eq!(of("process_payment", "FAILED"), PaymentFailed::TYPE.wire_name());
        assert_eq!(of("cancel_order", "COMPLETED"), OrderCancelled::TYPE.wire_name());
        assert_eq!(of("release_stock", "COMPENSATED"), StockReleased::TYPE.wire_name());
        assert_eq!(fact("StockReserved.v1", "reserve_stock", "SKIPPED"), "StockReserved.v1");
    }

    #[test]
    fn a_skipped_step_changes_the_saga_only() {
        let before = after(&[OrderCreated::TYPE]);
        let states = before.after(&StockReserved::TYPE.wire_name(), "TIMED_OUT", true);
        assert_eq!(states, States { saga: "TIMED_OUT".to_owned(), ..before });
    }
}
