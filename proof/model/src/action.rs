//! The transitions of the model: steps of the suite, actions of a customer and an operator, and faults.

use saga::Status;

use crate::{
    Saga,
    mail::{Id, Reader},
    payment::Side,
    world::{Detector, Fulfilment, World},
};

/// One atomic step; the first number is the index of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The relay publishes an event and marks it.
    Publish(usize, Id),
    /// A step of order or inventory takes a delivery: claim, effect, commit, acknowledgement.
    Deliver(usize, Id, usize),
    /// A worker of payment takes a delivery.
    Take(usize, Side, u8),
    /// A worker of payment takes its next phase.
    Work(usize, Side, usize),
    /// Inventory reads the stock without a lock; only without that guard.
    Look(usize),
    /// A detector finds the saga due.
    FindDue(usize),
    /// The detector gets the row's lock.
    DetectTimeout(usize),
    /// The compensation deadline has passed.
    RetryCompensation(usize),
    /// An operator resumes a saga that was given up.
    Resume(usize),
    /// The customer cancels.
    Cancel(usize),
    /// The relay crashes after publishing, before marking.
    PublishUnmarked(usize, Id),
    /// A consumer crashes after its commit, before the acknowledgement.
    DeliverUnacknowledged(usize, Id, usize),
    /// A worker of payment crashes, or times out waiting for an answer.
    Crash(usize, Side, usize),
    /// A request to charge, or to void, reaches the gateway after its sender has timed out.
    LateCharge(usize),
    LateVoid(usize),
    /// A consumer gets a duplicate of any event.
    Duplicate(usize, Id, usize),
    /// A copy is lost on its way.
    Lose(usize, Id, usize),
}

impl Action {
    /// The order that it concerns.
    pub fn order(self) -> usize {
        match self {
            Action::Publish(o, _)
            | Action::Deliver(o, _, _)
            | Action::Take(o, _, _)
            | Action::Work(o, _, _)
            | Action::Look(o)
            | Action::FindDue(o)
            | Action::DetectTimeout(o)
            | Action::RetryCompensation(o)
            | Action::Resume(o)
            | Action::Cancel(o)
            | Action::PublishUnmarked(o, _)
            | Action::DeliverUnacknowledged(o, _, _)
            | Action::Crash(o, _, _)
            | Action::LateCharge(o)
            | Action::LateVoid(o)
            | Action::Duplicate(o, _, _)
            | Action::Lose(o, _, _) => o,
        }
    }

    /// Whether it uses up one of a run's faults.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Action::PublishUnmarked(..)
                | Action::DeliverUnacknowledged(..)
                | Action::Crash(..)
                | Action::LateCharge(_)
                | Action::LateVoid(_)
                | Action::Duplicate(..)
                | Action::Lose(..)
        )
    }

    /// Whether it happens eventually, unless another action disables it; until then the world is not at rest.
    pub fn must_happen(self) -> bool {
        !self.is_fault() && !matches!(self, Action::Cancel(_))
    }
}

impl Saga {
    /// All enabled actions.
    pub fn enabled(&self, world: &World, actions: &mut Vec<Action>) {
        for (o, order) in world.orders.iter().enumerate() {
            if order.wrong.is_some() {
                actions.clear();
                return;
            }
            self.messages(o, order, world.faults_left > 0, actions);
            for side in [Side::Charge, Side::Refund] {
                self.workers(o, order, side, world.faults_left > 0, actions);
            }
            self.deadlines(o, order, actions);
            self.customer_and_operator(o, order, actions);
            if world.faults_left > 0 {
                if order.late_charge {
                    actions.push(Action::LateCharge(o));
                }
                if order.late_void {
                    actions.push(Action::LateVoid(o));
                }
            }
        }
    }

    fn messages(&self, o: usize, order: &Fulfilment, faults: bool, actions: &mut Vec<Action>) {
        for message in &order.mail {
            let id = message.id;
            if message.in_outbox {
                actions.push(Action::Publish(o, id));
                if faults && message.copies == [0; 2] {
                    actions.push(Action::PublishUnmarked(o, id));
                }
            }
            for (place, reader) in id.0.readers().iter().enumerate() {
                if message.copies[place] > 0 {
                    self.delivery(o, order, id, place, *reader, faults, actions);
                }
                if faults && !message.in_outbox && message.copies[place] < 2 {
                    actions.push(Action::Duplicate(o, id, place));
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one delivery and all its possible outcomes")]
    fn delivery(
        &self,
        o: usize,
        order: &Fulfilment,
        id: Id,
        place: usize,
        reader: Reader,
        faults: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(message) = order.message(id) else { return };
        let side = match reader {
            Reader::ProcessPayment => Some(Side::Charge),
            Reader::RefundPayment => Some(Side::Refund),
            _ => None,
        };
        let busy =
            side.map_or(0, |side| order.workers(side).iter().filter(|w| !w.is_idle() && w.event == id.1).count());
        // A copy that a worker holds is not in flight.
        let waiting = usize::from(message.copies[place]) > busy;
        match side {
            Some(side) if waiting && order.workers(side).iter().any(|w| w.is_idle()) => {
                actions.push(Action::Take(o, side, id.1));
            }
            Some(_) => {}
            None if reader == Reader::ReserveStock && !self.guards.stock_is_locked && order.seen.is_none() => {
                actions.push(Action::Look(o));
            }
            None => {
                actions.push(Action::Deliver(o, id, place));
                if faults && message.applied[place] == 0 {
                    actions.push(Action::DeliverUnacknowledged(o, id, place));
                }
            }
        }
        if faults && waiting {
            actions.push(Action::Lose(o, id, place));
        }
    }

    fn workers(&self, o: usize, order: &Fulfilment, side: Side, faults: bool, actions: &mut Vec<Action>) {
        for (w, _) in order.workers(side).iter().enumerate().filter(|(_, worker)| !worker.is_idle()) {
            actions.push(Action::Work(o, side, w));
            if faults {
                actions.push(Action::Crash(o, side, w));
            }
        }
    }

    /// A deadline may pass at any time; retries of a compensation are bounded, so that every run ends.
    fn deadlines(&self, o: usize, order: &Fulfilment, actions: &mut Vec<Action>) {
        let snapshot = order.moves_forward() && order.detectors[0] == Detector::Watching;
        if snapshot {
            actions.push(Action::FindDue(o));
        }
        if order.detectors.contains(&Detector::Found) {
            actions.push(Action::DetectTimeout(o));
        }
        match order.saga.status {
            Status::TimedOut => actions.push(Action::RetryCompensation(o)),
            Status::Compensating if self.would_be_retried(order) && self.may_retry(order) => {
                actions.push(Action::RetryCompensation(o));
            }
            _ => {}
        }
    }

    fn customer_and_operator(&self, o: usize, order: &Fulfilment, actions: &mut Vec<Action>) {
        if order.saga.status == Status::Failed && self.may_retry(order) {
            actions.push(Action::Resume(o));
        }
        if self.bounds.cancels && !order.history.by_customer && order.may_cancel_on_request() {
            actions.push(Action::Cancel(o));
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
