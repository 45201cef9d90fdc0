//! The state of the model: each service's rows, the events in flight, the card processor's ledger, and the phase of every worker.
//! Only a [`Phase`] is lost in a crash; every other change is durable, because it commits or does not happen.

use contracts::order_fulfillment::CREATE_ORDER;
use inventory::domain::ReservationStatus;
use order::domain::OrderStatus;
use payment::domain::{Answer, Ask, Payment, Status as PaymentStatus};
use saga::{SagaState, Status, Step, Transition};

use crate::{
    Bounds,
    gateway::Key,
    mail::{Id, Kind, Message},
    payment::Side,
};

/// All orders, and what they share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub orders: Vec<Fulfilment>,
    pub available: i8,
    pub reserved: i8,
    pub faults_left: u8,
    /// The last step made no progress, so a run could be infinite.
    pub no_progress: bool,
}

/// Inventory's row of an order, with its one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reservation {
    pub status: ReservationStatus,
    pub held: i8,
}

/// The phase of a replica of payment at a delivery; a crash, or a timed-out call, leads back to [`Phase::Idle`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// Has read whether the saga moves forward and whether the event was processed; both may be outdated.
    Read {
        forward: bool,
        processed: bool,
    },
    /// Has committed its intent, and is about to call the gateway.
    Asking(Ask),
    Found(Option<Answer>),
}

/// One replica of payment at one of its two steps, and which event of that step it works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Worker {
    pub event: u8,
    pub phase: Phase,
}

impl Worker {
    pub const IDLE: Worker = Worker { event: 0, phase: Phase::Idle };

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }
}

/// A detector of timeouts, regarding one saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Detector {
    Watching,
    /// Has found the saga due, and waits for the row's lock.
    Found,
    Done,
}

/// History variables: facts about the run that the properties refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct History {
    pub confirmed: u8,
    pub cancelled: u8,
    pub by_customer: bool,
    /// The compensation was given up at least once.
    pub given_up: bool,
    /// An operator has resumed it.
    pub resumed: bool,
    /// An attempt was counted while the cancellation was in flight.
    pub retried_too_early: bool,
    /// `PaymentProcessed` or `PaymentFailed`.
    pub charges: u8,
    /// Inventory has confirmed its undo.
    pub released: bool,
    /// Payment has confirmed its undo, and whether anything was refunded.
    pub refunded: Option<bool>,
    /// The cancellation came before any reservation, or before any payment intent.
    pub tombstones: [bool; 2],
}

/// Illegal outcomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    IllegalTransition(Status),
    /// An answer of the gateway that production code rejects as impossible.
    Contradiction,
    /// The same undo was confirmed with two amounts.
    TwoConfirmations,
    /// A step published what its row of the table does not let it publish.
    NotItsEvent(Kind),
    /// A row is missing that production code relies on.
    NoRow,
}

/// One order with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fulfilment {
    pub good_card: bool,
    pub order: OrderStatus,
    pub saga: SagaState,
    pub attempts: i16,
    /// How often its cancellation was published once more.
    pub retries: u8,
    pub reservation: Option<Reservation>,
    /// The stock that a reservation without a lock has read.
    pub seen: Option<i8>,
    pub payment: Option<Payment>,
    pub key: Key,
    /// Requests that were sent: each may also reach the gateway at any later time.
    pub late_charge: bool,
    pub late_void: bool,
    /// In the order of their ids.
    pub mail: Vec<Message>,
    /// Of payment, by [`Side`].
    pub workers: [Vec<Worker>; 2],
    /// Sorted, because the two are interchangeable.
    pub detectors: [Detector; 2],
    pub history: History,
    pub wrong: Option<Wrong>,
}

impl World {
    /// The initial state: every order is accepted, with its saga and its `OrderCreated`, in one transaction.
    pub fn new(bounds: &Bounds, good_cards: &[bool]) -> Self {
        World {
            orders: good_cards.iter().map(|good| Fulfilment::accepted(*good, bounds)).collect(),
            available: bounds.stock,
            reserved: 0,
            faults_left: bounds.faults,
            no_progress: false,
        }
    }

    /// A bounded measure that grows with every step. Weights: a later phase outweighs all earlier ones.
    pub fn progress(&self, bounds: &Bounds) -> i64 {
        let faults = i64::from(bounds.faults - self.faults_left);
        faults * 1_000_000_000 + self.orders.iter().map(Fulfilment::progress).sum::<i64>()
    }
}

impl Fulfilment {
    fn accepted(good_card: bool, bounds: &Bounds) -> Self {
        let mut detectors = [Detector::Done; 2];
        detectors.iter_mut().take(bounds.detectors).for_each(|detector| *detector = Detector::Watching);
        let mut accepted = Fulfilment {
            good_card,
            order: OrderStatus::Pending,
            saga: SagaState::started(),
            attempts: 0,
            retries: 0,
            reservation: None,
            seen: None,
            payment: None,
            key: Key::Fresh,
            late_charge: false,
            late_void: false,
            mail: Vec::new(),
            workers: [vec![Worker::IDLE; bounds.replicas], vec![Worker::IDLE; bounds.replicas]],
            detectors,
            history: History::default(),
            wrong: None,
        };
        accepted.publish(&CREATE_ORDER, Kind::OrderCreated);
        accepted
    }

    /// What `UnitOfWork::publish` does: a row of the outbox, in the transaction of the step.
    pub fn publish(&mut self, step: &Step, kind: Kind) {
        if !step.emits.contains(&kind.event_type()) {
            self.wrong = Some(Wrong::NotItsEvent(kind));
        }
        let before = self.mail.iter().filter(|m| m.id.0 == kind).count();
        let id = (kind, u8::try_from(before).unwrap_or(u8::MAX));
        let place = self.mail.partition_point(|m| m.id < id);
        self.mail.insert(place, Message { id, in_outbox: true, copies: [0; 2], applied: [0; 2] });
    }

    /// What `Sagas::record` does, under the saga's row lock.
    pub fn record(&mut self, transition: Transition) {
        match contracts::order_fulfillment::SAGA.apply(&self.saga, transition) {
            Ok(next) => self.saga = next,
            Err(illegal) => self.wrong = Some(Wrong::IllegalTransition(illegal.from)),
        }
        self.attempts = transition.attempts(self.attempts);
    }

    pub fn message(&self, id: Id) -> Option<&Message> {
        self.mail.iter().find(|m| m.id == id)
    }

    pub fn message_mut(&mut self, id: Id) -> Option<&mut Message> {
        self.mail.iter_mut().find(|m| m.id == id)
    }

    pub fn moves_forward(&self) -> bool {
        self.saga.status.moves_forward()
    }

    /// The last cancellation is in the outbox, or has not reached every participant that owes a confirmation.
    pub fn cancellation_in_flight(&self) -> bool {
        let Some(last) = self.mail.iter().rfind(|m| m.id.0 == Kind::OrderCancelled) else { return false };
        let owes = |place: usize| self.saga.receipts_due.iter().any(|due| due == last.reader(place).service().0);
        last.in_outbox || (0..last.copies.len()).any(|place| last.copies[place] > 0 && owes(place))
    }

    /// No cancellation is in flight or being processed.
    pub fn no_cancellation_in_flight(&self) -> bool {
        let of_cancellations = |m: &&Message| m.id.0 == Kind::OrderCancelled;
        self.mail.iter().filter(of_cancellations).all(Message::is_done)
            && self.workers[Side::Refund as usize].iter().all(Worker::is_idle)
    }

    pub fn holds_stock(&self) -> i8 {
        self.reservation.map_or(0, |r| r.held)
    }

    pub fn is_captured(&self) -> bool {
        matches!(&self.payment, Some(Payment { status: PaymentStatus::Captured(_), .. }))
    }

    fn progress(&self) -> i64 {
        let status = match self.saga.status {
            Status::Started => 0,
            Status::InProgress => 1,
            Status::TimedOut | Status::Completed => 2,
            Status::Compensating => 3,
            Status::Failed => 4,
            Status::Compensated => 5,
        };
        let message = |m: &Message| {
            let applied: i64 = m.applied.iter().map(|n| i64::from(*n)).sum();
            let copies: i64 = m.copies.iter().map(|n| i64::from(*n)).sum();
            applied * 1_000 + if m.in_outbox { 1 } else { 50 } - copies * 10
        };
        let phase = |w: &Worker| match w.phase {
            Phase::Idle => 0,
            Phase::Read { .. } => 1,
            Phase::Asking(_) => 2,
            Phase::Found(_) => 3,
        };
        let workers: i64 = self.workers.iter().flatten().map(phase).sum();
        let detectors: i64 = self.detectors.iter().map(|d| *d as i64).sum();
        i64::from(self.retries) * 10_000_000
            + status * 100_000
            + self.mail.iter().map(message).sum::<i64>()
            + workers
            + detectors
            + i64::from(self.seen.is_some())
    }
}
