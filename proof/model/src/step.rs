//! The model's transition function, as the checker's trait.

use contracts::order_fulfillment::{CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER};
use payment::domain::Ask;
use stateright::{Model, Property};

use crate::{
    Action, Saga, World,
    mail::{Id, Message, Reader},
    property,
    world::Worker,
};

impl Model for Saga {
    type State = World;
    /// With the index of its order.
    type Action = (usize, Action);

    fn init_states(&self) -> Vec<World> {
        let orders = self.bounds.orders;
        let cards = if self.bounds.bad_cards { 1u32 << orders } else { 1 };
        let good_cards = |bad: u32| (0..orders).map(|order| bad >> order & 1 == 0).collect::<Vec<_>>();
        (0..cards).map(|bad| World::new(&self.bounds, &good_cards(bad))).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Self::Action>) {
        self.enabled(world, actions);
    }

    fn next_state(&self, world: &World, (o, action): Self::Action) -> Option<World> {
        let mut next = world.clone();
        self.apply(&mut next, o, action);
        if action.is_fault() {
            next.faults_left -= 1;
        }
        next.no_progress = next.progress(&self.bounds) <= world.progress(&self.bounds);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

impl Saga {
    fn apply(&self, world: &mut World, o: usize, action: Action) {
        let guards = &self.guards;
        let seen = world.available;
        let order = &mut world.orders[o];
        match action {
            Action::Publish(id) | Action::PublishUnmarked(id) => {
                if let Some(message) = order.message_mut(id) {
                    message.reaches_stream();
                    message.in_outbox = matches!(action, Action::PublishUnmarked(_));
                }
            }
            Action::Deliver(id, place) => self.deliver(world, o, id, place, true),
            Action::DeliverUnacknowledged(id, place) => self.deliver(world, o, id, place, false),
            Action::Take(side, event) => order.take(side, event, guards),
            Action::Work(side, worker) => order.work(side, worker, guards),
            Action::Crash(side, worker) => order.workers[side as usize][worker] = Worker::IDLE,
            Action::Look => order.seen = Some(seen),
            Action::FindDue => order.find_due(),
            Action::DetectTimeout => order.detect_timeout(guards),
            Action::RetryCompensation => order.retry_compensation(&self.bounds, guards),
            Action::Resume => order.resume(),
            Action::Cancel => order.cancel_on_request(guards),
            Action::LateCharge => drop(order.key.ask(&Ask::Charge, order.good_card)),
            Action::LateVoid => drop(order.key.ask(&Ask::Void, order.good_card)),
            Action::Duplicate(id, place) => copies(order.message_mut(id), place, 1),
            Action::Lose(id, place) => copies(order.message_mut(id), place, -1),
        }
    }

    /// One transaction of order or inventory, unless the inbox has the event, and the acknowledgement unless the process crashes.
    fn deliver(&self, world: &mut World, o: usize, id: Id, place: usize, acknowledged: bool) {
        let Some(message) = world.orders[o].message_mut(id) else { return };
        let processed = message.applied[place] > 0;
        let reader = message.reader(place);
        message.copies[place] -= u8::from(acknowledged);
        if processed && self.guards.inbox {
            return;
        }
        message.applied[place] += 1;
        let order = &mut world.orders[o];
        match reader {
            Reader::ReserveStock => world.reserve_stock(o, &self.guards),
            Reader::ReleaseStock => world.release_stock(o, &self.guards),
            Reader::ConfirmOrder => order.confirm_order(),
            Reader::CancelUnfillableOrder => order.cancel_for(&CANCEL_UNFILLABLE_ORDER, &self.guards),
            Reader::CancelUnpaidOrder => order.cancel_for(&CANCEL_UNPAID_ORDER, &self.guards),
            Reader::CancelTimedOutOrder => order.cancel_for(&CANCEL_TIMED_OUT_ORDER, &self.guards),
            // Payment's steps consist of phases: `Action::Take` and `Action::Work`.
            Reader::ProcessPayment | Reader::RefundPayment => {}
        }
    }
}

fn copies(message: Option<&mut Message>, place: usize, change: i8) {
    if let Some(message) = message {
        message.copies[place] = message.copies[place].saturating_add_signed(change);
    }
}
