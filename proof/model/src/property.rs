//! The properties: what holds in every state, what holds at rest, and which states must be reachable, so that the other
//! properties are not vacuous.

use inventory::domain::ReservationStatus;
use order::domain::OrderStatus;
use payment::domain::{Payment, Status as PaymentStatus};
use saga::Status;
use stateright::Property;

use crate::{
    Saga,
    gateway::Key,
    mail::Kind,
    world::{Fulfilment, World},
};

/// Names of the properties that tests refer to.
pub mod names {
    pub const ONE_END: &str = "an order ends once, unless its customer cancels a confirmed one";
    pub const STOCK: &str = "available + reserved = supplied, and reserved is what the orders hold";
    pub const BOOKS: &str = "payment's rows agree with the processor's ledger";
    pub const UNDONE: &str = "a compensated order holds nothing, and both undos are confirmed";
    pub const TOMBSTONES: &str = "a tombstone turns the late step into a no-op";
    pub const ONCE: &str = "no consumer applies an event twice";
    pub const LEGAL: &str = "no step is illegal for its saga, its table or the processor";
    pub const RETRIES: &str = "no retry is counted while the previous cancellation is in flight";
    pub const PROGRESS: &str = "every step makes progress";
    pub const ENDED: &str = "at rest, every order is confirmed and completed, or cancelled and compensated";
    pub const CONSERVED: &str = "at rest, captured - refunded = confirmed, in money and in stock";
}

pub(crate) fn all() -> Vec<Property<Saga>> {
    always().into_iter().chain(reachable()).collect()
}

fn always() -> Vec<Property<Saga>> {
    vec![
        Property::always(names::ONE_END, |_, w: &World| w.orders.iter().all(ends_once)),
        Property::always(names::STOCK, stock_is_conserved),
        Property::always(names::BOOKS, |_, w: &World| w.orders.iter().all(books_agree)),
        Property::always(names::UNDONE, |_, w: &World| w.orders.iter().all(compensated_is_undone)),
        Property::always(names::TOMBSTONES, |_, w: &World| w.orders.iter().all(tombstones_win)),
        Property::always(names::ONCE, |_, w: &World| {
            w.orders.iter().flat_map(|o| &o.mail).all(|m| m.applied.iter().all(|times| *times <= 1))
        }),
        Property::always(names::LEGAL, |_, w: &World| w.orders.iter().all(|o| o.wrong.is_none())),
        Property::always(names::RETRIES, |_, w: &World| w.orders.iter().all(|o| !o.history.retried_too_early)),
        Property::always(names::PROGRESS, |_, w: &World| !w.no_progress),
        Property::always(names::ENDED, |saga: &Saga, w: &World| w.orders.iter().all(has_ended) || !saga.is_at_rest(w)),
        Property::always(names::CONSERVED, |saga: &Saga, w: &World| {
            w.orders.iter().all(is_conserved) || !saga.is_at_rest(w)
        }),
    ]
}

/// A state that the bounds exclude counts as reached.
fn reachable() -> Vec<Property<Saga>> {
    fn some(world: &World, which: fn(&Fulfilment) -> bool) -> bool {
        world.orders.iter().any(which)
    }
    vec![
        Property::sometimes("an order is completed", |_, w| some(w, |o| o.saga.status == Status::Completed)),
        Property::sometimes("a timed-out order is compensated", |saga: &Saga, w| {
            let by_timeout = |o: &Fulfilment| {
                let timed_out = o.message((Kind::SagaTimedOut, 0)).is_some();
                timed_out && !o.history.by_customer && o.saga.status == Status::Compensated
            };
            saga.bounds.detectors == 0 || some(w, by_timeout)
        }),
        Property::sometimes("a confirmed order is cancelled and refunded", |saga: &Saga, w| {
            let refunded = |o: &Fulfilment| {
                o.history.confirmed == 1 && o.saga.status == Status::Compensated && o.key == Key::Refunded
            };
            !saga.bounds.cancels || some(w, refunded)
        }),
        Property::sometimes("a cancellation overtakes the reservation", |saga: &Saga, w| {
            !saga.bounds.cancels || some(w, |o| o.history.tombstones[0])
        }),
        Property::sometimes("a cancellation overtakes the payment", |saga: &Saga, w| {
            !saga.bounds.cancels || some(w, |o| o.history.tombstones[1])
        }),
        Property::sometimes("a charge is fenced off", |saga: &Saga, w| {
            !saga.bounds.cancels || some(w, |o| o.key == Key::Fenced)
        }),
        Property::sometimes("a compensation is given up, resumed and done", |saga: &Saga, w| {
            let resumed = |o: &Fulfilment| o.history.resumed && o.saga.status == Status::Compensated;
            saga.bounds.faults == 0 || some(w, resumed)
        }),
        Property::sometimes("a compensation is given up, and completed by its last confirmation", |saga: &Saga, w| {
            let late =
                |o: &Fulfilment| o.history.given_up && !o.history.resumed && o.saga.status == Status::Compensated;
            saga.bounds.faults < 2 || some(w, late)
        }),
        Property::sometimes("an order is refused for lack of stock", |saga: &Saga, w| {
            let refused = |o: &Fulfilment| o.reservation.is_some_and(|r| r.status == ReservationStatus::Refused);
            saga.bounds.orders <= usize::try_from(saga.bounds.stock).unwrap_or(0) || some(w, refused)
        }),
    ]
}

impl Saga {
    /// Nothing is left that must happen: only a fault or the customer could change the state.
    pub fn is_at_rest(&self, world: &World) -> bool {
        let mut actions = Vec::new();
        self.enabled(world, &mut actions);
        !actions.iter().any(|(_, action)| action.must_happen())
    }
}

fn ends_once(o: &Fulfilment) -> bool {
    let both = o.history.confirmed + o.history.cancelled > 1;
    let status = match o.order {
        OrderStatus::Pending => o.history.confirmed + o.history.cancelled == 0,
        OrderStatus::Confirmed => o.history.confirmed == 1 && o.history.cancelled == 0,
        OrderStatus::Cancelled => o.history.cancelled == 1,
    };
    status && o.history.confirmed <= 1 && (!both || o.history.by_customer)
}

fn stock_is_conserved(saga: &Saga, world: &World) -> bool {
    let held: i8 = world.orders.iter().map(Fulfilment::holds_stock).sum();
    let only_reserved_hold =
        |o: &Fulfilment| o.reservation.is_none_or(|r| (r.held > 0) == (r.status == ReservationStatus::Reserved));
    world.available >= 0
        && world.available + world.reserved == saga.bounds.stock
        && world.reserved == held
        && world.orders.iter().all(only_reserved_hold)
}

fn books_agree(o: &Fulfilment) -> bool {
    let holds = match o.payment.as_ref().map(|p| &p.status) {
        None => o.key == Key::Fresh,
        Some(PaymentStatus::Pending) => true,
        Some(PaymentStatus::Captured(_)) => matches!(o.key, Key::Charged | Key::Refunded),
        Some(PaymentStatus::Declined(_)) => o.key == Key::Declined,
        Some(PaymentStatus::Refunded(_)) => o.key == Key::Refunded,
        Some(PaymentStatus::Voided { asked: true }) => matches!(o.key, Key::Fenced | Key::Declined),
        // A tombstone: its void may be in flight.
        Some(PaymentStatus::Voided { asked: false }) => matches!(o.key, Key::Fresh | Key::Fenced),
    };
    let confirmation =
        o.history.refunded.is_none_or(|refunded| refunded == (o.key == Key::Refunded) && o.key != Key::Charged);
    holds && confirmation && o.history.charges <= 1
}

fn compensated_is_undone(o: &Fulfilment) -> bool {
    let undone = o.holds_stock() == 0 && o.key != Key::Charged;
    o.saga.status != Status::Compensated || undone && o.history.released && o.history.refunded.is_some()
}

fn tombstones_win(o: &Fulfilment) -> bool {
    let [reservation, payment] = o.history.tombstones;
    let voided = |p: &Payment| p.status == PaymentStatus::Voided { asked: false } && p.cancelled;
    (!reservation || o.reservation.is_some_and(|r| r.status == ReservationStatus::Tombstone && r.held == 0))
        && (!payment || o.payment.as_ref().is_some_and(voided) && matches!(o.key, Key::Fresh | Key::Fenced))
}

fn has_ended(o: &Fulfilment) -> bool {
    matches!(
        (o.order, o.saga.status),
        (OrderStatus::Confirmed, Status::Completed) | (OrderStatus::Cancelled, Status::Compensated)
    )
}

fn is_conserved(o: &Fulfilment) -> bool {
    let confirmed = o.order == OrderStatus::Confirmed;
    (o.key == Key::Charged) == confirmed && o.is_captured() == confirmed && (o.holds_stock() == 1) == confirmed
}
