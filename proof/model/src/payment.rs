//! Payment's steps, as in `services/payment/src/steps.rs`: prepare in one transaction, call the gateway outside of any, apply the
//! outcome in another; a crash between two of them loses only the worker's phase. The decisions in SQL: `insert … on conflict do
//! nothing` writes an intent only where the order has no payment, and one upsert marks it cancelled or writes the tombstone. The
//! inbox and the saga's status are read in separate statements before the intent is written, so reading is a separate phase.

use contracts::{PAYMENT, order_fulfillment::PROCESS_PAYMENT};
use payment::domain::{
    Answer, Ask, ChargeEvent, Payment, Plan, Status, apply_charge_answer, apply_refund_answer, plan_charge, plan_refund,
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
    /// Payment's index among the readers of this side's event.
    pub(crate) fn place_of(side: Side) -> usize {
        use crate::mail::Reader;
        let is_payment = |r: &Reader| matches!(r, Reader::ProcessPayment | Reader::RefundPayment);
        side.event().readers().iter().position(is_payment).unwrap_or(0)
    }

    fn processed(&self, side: Side, event: u8, guards: &Guards) -> bool {
        guards.inbox && self.message((side.event(), event)).is_some_and(|m| m.applied[Self::place_of(side)] > 0)
    }

    /// A delivery reaches an idle worker.
    pub(crate) fn take(&mut self, side: Side, event: u8, guards: &Guards) {
        let begun = Worker {
            event,
            phase: match side {
                Side::Charge => {
                    Phase::Read { forward: self.moves_forward(), processed: self.processed(side, event, guards) }
                }
                Side::Refund => self.prepare_refund(event, guards),
            },
        };
        if let Some(idle) = self.workers[side as usize].iter_mut().find(|w| w.is_idle()) {
            *idle = begun;
        }
    }

    /// The worker's next phase.
    pub(crate) fn work(&mut self, side: Side, worker: usize, guards: &Guards) {
        let Worker { event, phase } = self.workers[side as usize][worker].clone();
        let phase = match phase {
            Phase::Idle => Phase::Idle,
            Phase::Read { forward, processed } => self.prepare_charge(forward, processed),
            Phase::Asking(ask) => Phase::Found(Some(self.key.ask(&ask, self.good_card))),
            Phase::Found(answer) => {
                self.apply_outcome(side, event, answer.as_ref(), guards);
                Phase::Idle
            }
        };
        let event = if phase == Phase::Idle { 0 } else { event };
        self.workers[side as usize][worker] = Worker { event, phase };
    }

    fn prepare_charge(&mut self, forward: bool, processed: bool) -> Phase {
        if processed {
            return Phase::Found(None);
        }
        if forward && self.payment.is_none() {
            self.payment = Some(Payment { status: Status::Pending, cancelled: false });
        }
        let plan = plan_charge(self.payment.as_ref(), forward, AMOUNT);
        self.follow(plan)
    }

    fn prepare_refund(&mut self, event: u8, guards: &Guards) -> Phase {
        if self.processed(Side::Refund, event, guards) {
            return Phase::Found(None);
        }
        if self.payment.is_none() && guards.tombstones {
            self.payment = Some(Payment { status: Status::Voided { asked: false }, cancelled: true });
            self.history.tombstones[1] = true;
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
    fn apply_outcome(&mut self, side: Side, event: u8, answer: Option<&Answer>, guards: &Guards) {
        let id: Id = (side.event(), event);
        let claimed = !self.processed(side, event, guards);
        if let Some(message) = self.message_mut(id) {
            let place = Self::place_of(side);
            message.copies[place] = message.copies[place].saturating_sub(1);
            message.applied[place] += u8::from(claimed);
        }
        let outcome = match side {
            _ if !claimed => Ok(()),
            Side::Charge => self.apply_charge_outcome(answer),
            Side::Refund => self.apply_refund_outcome(answer, guards),
        };
        if let Err(wrong) = outcome {
            self.wrong = Some(wrong);
        }
    }

    fn apply_charge_outcome(&mut self, answer: Option<&Answer>) -> Result<(), Wrong> {
        let forward = self.moves_forward();
        let Some(answer) = answer else { return Ok(()) };
        let payment = self.payment.as_mut().ok_or(Wrong::NoRow)?;
        let outcome = apply_charge_answer(payment, answer, forward).map_err(|_| Wrong::Contradiction)?;
        payment.status = outcome.status;
        let (kind, transition) = match outcome.event {
            ChargeEvent::Processed(_) => (Kind::PaymentProcessed, Transition::Advance { step: PROCESS_PAYMENT.number }),
            ChargeEvent::Failed(_) => (Kind::PaymentFailed, Transition::Stay),
            ChargeEvent::None(_) => return Ok(()),
        };
        self.publish(&PROCESS_PAYMENT, kind);
        self.record(transition);
        self.history.charges += 1;
        Ok(())
    }

    fn apply_refund_outcome(&mut self, answer: Option<&Answer>, guards: &Guards) -> Result<(), Wrong> {
        let refunded = match &mut self.payment {
            Some(payment) => {
                payment.status = apply_refund_answer(payment, answer).map_err(|_| Wrong::Contradiction)?;
                matches!(payment.status, Status::Refunded(_))
            }
            None if guards.tombstones => return Err(Wrong::NoRow),
            None => false,
        };
        if self.history.refunded.is_some_and(|before| before != refunded) {
            self.wrong = Some(Wrong::TwoConfirmations);
        }
        self.history.refunded = Some(refunded);
        self.record(Transition::Receipt { from: PAYMENT });
        Ok(())
    }
}
