//! Payment's steps, as `services/payment/src/steps.rs` takes them: prepare in one transaction, ask outside any, settle in
//! another; a crash between any two forgets only how far the worker was. What SQL decides: `insert … on conflict do
//! nothing` writes an intent only where the order has no payment, and one upsert marks it cancelled or lays the
//! tombstone. The inbox and the saga's status are read in statements of their own before the intent is written, so
//! that reading is a phase of its own.

use contracts::{PAYMENT, order_fulfillment::PROCESS_PAYMENT};
use payment::domain::{
    Answer, Ask, Payment, Plan, Status, Tell, plan_charge, plan_refund, settle_charge, settle_refund,
};
use saga::Transition;

use crate::{
    Guards,
    mail::{Id, Kind},
    world::{Fulfilment, Phase, Worker, Wrong},
};

const AMOUNT: i64 = 10;

/// Which of payment's two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Charge,
    Refund,
}

impl Side {
    /// The event of this side's step.
    pub const fn event(self) -> Kind {
        match self {
            Side::Charge => Kind::StockReserved,
            Side::Refund => Kind::OrderCancelled,
        }
    }
}

impl Fulfilment {
    pub fn workers(&self, side: Side) -> &[Worker] {
        match side {
            Side::Charge => &self.charging,
            Side::Refund => &self.refunding,
        }
    }

    /// Payment's place among the readers of this side's event.
    pub(crate) fn place_of(side: Side) -> usize {
        use crate::mail::Reader;
        let is_payment = |r: &Reader| matches!(r, Reader::ProcessPayment | Reader::RefundPayment);
        side.event().readers().iter().position(is_payment).unwrap_or(0)
    }

    fn had(&self, side: Side, event: u8, guards: &Guards) -> bool {
        guards.inbox && self.message((side.event(), event)).is_some_and(|m| m.applied[Self::place_of(side)] > 0)
    }

    /// A delivery reaches an idle worker.
    pub(crate) fn take(&mut self, side: Side, event: u8, guards: &Guards) {
        let begun = Worker {
            event,
            phase: match side {
                Side::Charge => Phase::Read { forward: self.moves_forward(), had: self.had(side, event, guards) },
                Side::Refund => self.prepare_refund(event, guards),
            },
        };
        let workers = self.workers_mut(side);
        if let Some(idle) = workers.iter_mut().find(|w| w.is_idle()) {
            *idle = begun;
        }
    }

    /// The process ends, or its patience does; what was sent may still arrive.
    pub(crate) fn crash(&mut self, side: Side, worker: usize) {
        self.workers_mut(side)[worker] = Worker::IDLE;
    }

    /// The worker's next effect.
    pub(crate) fn work(&mut self, side: Side, worker: usize, guards: &Guards) {
        let Worker { event, phase } = self.workers(side)[worker].clone();
        let phase = match phase {
            Phase::Idle => Phase::Idle,
            Phase::Read { forward, had } => self.prepare_charge(forward, had),
            Phase::Asking(ask) => Phase::Found(Some(self.key.ask(&ask, self.good_card))),
            Phase::Found(answer) => {
                self.settle(side, event, answer.as_ref(), guards);
                Phase::Idle
            }
        };
        let event = if phase == Phase::Idle { 0 } else { event };
        self.workers_mut(side)[worker] = Worker { event, phase };
    }

    fn workers_mut(&mut self, side: Side) -> &mut Vec<Worker> {
        match side {
            Side::Charge => &mut self.charging,
            Side::Refund => &mut self.refunding,
        }
    }

    fn prepare_charge(&mut self, forward: bool, had: bool) -> Phase {
        if had {
            return Phase::Found(None);
        }
        if forward && self.payment.is_none() {
            self.payment = Some(Payment { status: Status::Pending, cancelled: false });
        }
        let plan = plan_charge(self.payment.as_ref(), forward, AMOUNT);
        self.follow(plan)
    }

    fn prepare_refund(&mut self, event: u8, guards: &Guards) -> Phase {
        if self.had(Side::Refund, event, guards) {
            return Phase::Found(None);
        }
        if self.payment.is_none() && guards.tombstones {
            self.payment = Some(Payment { status: Status::Voided { asked: false }, cancelled: true });
            self.told.tombstones[1] = true;
        }
        let Some(payment) = &mut self.payment else { return Phase::Found(None) };
        payment.cancelled = true;
        let plan = plan_refund(payment);
        self.follow(plan)
    }

    fn follow(&mut self, plan: Plan) -> Phase {
        match plan {
            Plan::Ask(ask) => {
                self.late_charge |= ask == Ask::Charge;
                self.late_void |= ask != Ask::Charge;
                Phase::Asking(ask)
            }
            Plan::Known(answer) => Phase::Found(Some(answer)),
            Plan::Skip(_) => Phase::Found(None),
        }
    }

    /// Claim, decide, commit, acknowledge.
    fn settle(&mut self, side: Side, event: u8, answer: Option<&Answer>, guards: &Guards) {
        let id: Id = (side.event(), event);
        let claimed = !self.had(side, event, guards);
        if let Some(message) = self.message_mut(id) {
            let place = Self::place_of(side);
            message.copies[place] = message.copies[place].saturating_sub(1);
            message.applied[place] += u8::from(claimed);
        }
        match side {
            _ if !claimed => {}
            Side::Charge => self.settle_charge(answer),
            Side::Refund => self.settle_refund(answer, guards),
        }
    }

    fn settle_charge(&mut self, answer: Option<&Answer>) {
        let forward = self.moves_forward();
        let Some(answer) = answer else { return };
        let Some(payment) = &mut self.payment else {
            self.wrong = Some(Wrong::NoRow);
            return;
        };
        let Ok(settled) = settle_charge(payment, answer, forward) else {
            self.wrong = Some(Wrong::Contradiction);
            return;
        };
        payment.status = settled.status;
        match settled.tell {
            Tell::Processed(_) => {
                self.publish(&PROCESS_PAYMENT, Kind::PaymentProcessed);
                self.record(Transition::Advance { step: PROCESS_PAYMENT.number });
                self.told.charges += 1;
            }
            Tell::Failed(_) => {
                self.publish(&PROCESS_PAYMENT, Kind::PaymentFailed);
                self.record(Transition::Stay);
                self.told.charges += 1;
            }
            Tell::Nothing(_) => {}
        }
    }

    fn settle_refund(&mut self, answer: Option<&Answer>, guards: &Guards) {
        let refunded = match &mut self.payment {
            Some(payment) => {
                let Ok(status) = settle_refund(payment, answer) else {
                    self.wrong = Some(Wrong::Contradiction);
                    return;
                };
                payment.status = status;
                matches!(payment.status, Status::Refunded(_))
            }
            None if guards.tombstones => {
                self.wrong = Some(Wrong::NoRow);
                return;
            }
            None => false,
        };
        if self.told.refunded.is_some_and(|before| before != refunded) {
            self.wrong = Some(Wrong::TwoReceipts);
        }
        self.told.refunded = Some(refunded);
        self.record(Transition::Receipt { from: PAYMENT });
    }
}
