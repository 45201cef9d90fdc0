//! The transitions of the model: steps of the suite, actions of a customer and an operator, and faults.

use saga::Status;

use crate::{
    Saga,
    mail::{Id, Message, Reader},
    payment::Side,
    world::{Detector, Fulfilment, Worker, World},
};

/// One atomic step of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The relay publishes an event and marks it.
    Publish(Id),
    /// A step of order or inventory takes a delivery: claim, effect, commit, acknowledgement.
    Deliver(Id, usize),
    /// A worker of payment takes a delivery.
    Take(Side, u8),
    /// A worker of payment takes its next phase.
    Work(Side, usize),
    /// Inventory reads the stock without a lock; only without that guard.
    Look,
    /// A detector finds the saga due.
    FindDue,
    /// The detector gets the row's lock.
    DetectTimeout,
    /// The compensation deadline has passed.
    RetryCompensation,
    /// An operator resumes a saga that was given up.
    Resume,
    /// The customer cancels.
    Cancel,
    /// The relay crashes after publishing, before marking.
    PublishUnmarked(Id),
    /// A consumer crashes after its commit, before the acknowledgement.
    DeliverUnacknowledged(Id, usize),
    /// A worker of payment crashes, or times out waiting for an answer; a request that was sent may still arrive.
    Crash(Side, usize),
    /// A request to charge, or to void, reaches the gateway after its sender has timed out.
    LateCharge,
    LateVoid,
    /// A consumer gets a duplicate of any event.
    Duplicate(Id, usize),
    /// A copy is lost on its way.
    Lose(Id, usize),
}

impl Action {
    /// Whether it uses up one of a run's faults.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Action::PublishUnmarked(_)
                | Action::DeliverUnacknowledged(..)
                | Action::Crash(..)
                | Action::LateCharge
                | Action::LateVoid
                | Action::Duplicate(..)
                | Action::Lose(..)
        )
    }

    /// Whether it happens eventually, unless another action disables it; until then the world is not at rest.
    pub fn must_happen(self) -> bool {
        !self.is_fault() && self != Action::Cancel
    }
}

impl Saga {
    /// All enabled actions, with the index of their order.
    pub fn enabled(&self, world: &World, actions: &mut Vec<(usize, Action)>) {
        if world.orders.iter().any(|order| order.wrong.is_some()) {
            return;
        }
        for (place, order) in world.orders.iter().enumerate() {
            let mut enabled = Vec::new();
            self.messages(order, &mut enabled);
            for side in [Side::Charge, Side::Refund] {
                let workers = order.workers[side as usize].iter().enumerate();
                for (worker, _) in workers.filter(|(_, worker)| !worker.is_idle()) {
                    enabled.extend([Action::Work(side, worker), Action::Crash(side, worker)]);
                }
            }
            self.deadlines(order, &mut enabled);
            self.customer_and_operator(order, &mut enabled);
            enabled.extend(order.late_charge.then_some(Action::LateCharge));
            enabled.extend(order.late_void.then_some(Action::LateVoid));
            enabled.retain(|action| world.faults_left > 0 || !action.is_fault());
            actions.extend(enabled.into_iter().map(|action| (place, action)));
        }
    }

    fn messages(&self, order: &Fulfilment, actions: &mut Vec<Action>) {
        for message in &order.mail {
            let id = message.id;
            if message.in_outbox {
                actions.push(Action::Publish(id));
                if message.copies == [0; 2] {
                    actions.push(Action::PublishUnmarked(id));
                }
            }
            for place in 0..id.0.readers().len() {
                if message.copies[place] > 0 {
                    self.delivery(order, message, place, actions);
                }
                if !message.in_outbox && message.copies[place] < 2 {
                    actions.push(Action::Duplicate(id, place));
                }
            }
        }
    }

    /// One delivery and all its possible outcomes.
    fn delivery(&self, order: &Fulfilment, message: &Message, place: usize, actions: &mut Vec<Action>) {
        let (id, reader) = (message.id, message.reader(place));
        let side = match reader {
            Reader::ProcessPayment => Some(Side::Charge),
            Reader::RefundPayment => Some(Side::Refund),
            _ => None,
        };
        let workers = side.map_or(&[][..], |side| order.workers[side as usize].as_slice());
        let busy = workers.iter().filter(|w| !w.is_idle() && w.event == id.1).count();
        // A copy that a worker holds is not in flight.
        let waiting = usize::from(message.copies[place]) > busy;
        match side {
            Some(side) if waiting && workers.iter().any(Worker::is_idle) => actions.push(Action::Take(side, id.1)),
            Some(_) => {}
            None if reader == Reader::ReserveStock && !self.guards.stock_is_locked && order.seen.is_none() => {
                actions.push(Action::Look);
            }
            None => {
                actions.push(Action::Deliver(id, place));
                if message.applied[place] == 0 {
                    actions.push(Action::DeliverUnacknowledged(id, place));
                }
            }
        }
        if waiting {
            actions.push(Action::Lose(id, place));
        }
    }

    /// A deadline may pass at any time; retries of a compensation are bounded, so that every run ends.
    fn deadlines(&self, order: &Fulfilment, actions: &mut Vec<Action>) {
        if order.moves_forward() && order.detectors[0] == Detector::Watching {
            actions.push(Action::FindDue);
        }
        if order.detectors.contains(&Detector::Found) {
            actions.push(Action::DetectTimeout);
        }
        match order.saga.status {
            Status::TimedOut => actions.push(Action::RetryCompensation),
            Status::Compensating if self.would_be_retried(order) && self.may_retry(order) => {
                actions.push(Action::RetryCompensation);
            }
            _ => {}
        }
    }

    fn customer_and_operator(&self, order: &Fulfilment, actions: &mut Vec<Action>) {
        if order.saga.status == Status::Failed && self.may_retry(order) {
            actions.push(Action::Resume);
        }
        if self.bounds.cancels && !order.history.by_customer && order.may_cancel_on_request() {
            actions.push(Action::Cancel);
        }
    }

    /// Otherwise a passing deadline has no effect.
    fn would_be_retried(&self, order: &Fulfilment) -> bool {
        !order.cancellation_in_flight() || !self.guards.retries_wait
    }

    /// Within the bounds; and once more for each loss, when no cancellation is in flight. If that does not suffice, the world
    /// comes to rest with an unfinished order, which the checker reports.
    fn may_retry(&self, order: &Fulfilment) -> bool {
        let Saga { bounds, .. } = self;
        order.retries < bounds.retries
            || (order.retries < bounds.retries + bounds.faults && order.no_cancellation_in_flight())
    }
}
