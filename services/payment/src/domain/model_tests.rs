//! Every interleaving of the two steps, two replicas of each, crashes, redeliveries, timeouts, cancellations
//! and requests that reach the gateway late. The decisions and the saga's state are the production code; the
//! database, the broker and the gateway are minimal models with all their failures.

use std::collections::HashSet;

use contracts::PAYMENT;
use saga::{SagaState, Status as SagaStatus, Transition};

use super::*;

/// The gateway's ledger for the payment's one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Fresh,
    Charged,
    Declined,
    Fenced,
    Refunded,
}

/// The progress of one replica with one delivery. A crash, or a timeout of the call, returns to [`Phase::Idle`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Has read whether the saga moves forward, which may be outdated.
    Read(bool),
    Planned(PlanOf),
    Sent(Ask),
    Answered(Option<Answer>),
}

type PlanOf = Option<Result<Ask, Answer>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    good_card: bool,
    /// The gateway's record of a payment that a restored database does not have.
    forgotten: Key,
    /// For each replica of `refund_payment` which of two `OrderCancelled` it handles.
    refund_events: &'static [usize],
    payment: Option<Payment>,
    key: Key,
    saga: SagaState,
    published: [bool; 2],
    charge_inbox: bool,
    refund_inbox: [bool; 2],
    processed: u8,
    failed: u8,
    /// Whether the receipts reported a refund, if any was published.
    receipt: Option<bool>,
    charging: Vec<Phase>,
    refunding: Vec<Phase>,
    /// Requests that were sent: each may reach the gateway again at any later time.
    late_charge: bool,
    late_void: bool,
}

impl World {
    fn new((good_card, forgotten): (bool, Key), charging: usize, refund_events: &'static [usize]) -> Self {
        World {
            good_card,
            forgotten,
            refund_events,
            payment: None,
            key: forgotten,
            saga: SagaState { status: SagaStatus::InProgress, current_step: 1, ..SagaState::started() },
            published: [false; 2],
            charge_inbox: false,
            refund_inbox: [false; 2],
            processed: 0,
            failed: 0,
            receipt: None,
            charging: vec![Phase::Idle; charging],
            refunding: vec![Phase::Idle; refund_events.len()],
            late_charge: false,
            late_void: false,
        }
    }

    /// The gateway's contract: a key has one outcome, but a void overrides a charge permanently.
    fn gateway(&mut self, ask: &Ask) -> Answer {
        let charge = Reference("ch_1".to_owned());
        self.key = match (ask, self.key) {
            (Ask::Charge, Key::Fresh) if self.good_card => Key::Charged,
            (Ask::Charge, Key::Fresh) => Key::Declined,
            (Ask::Void, Key::Fresh) => Key::Fenced,
            (Ask::Void | Ask::Refund(_), Key::Charged) => Key::Refunded,
            (_, decided) => decided,
        };
        match (ask, self.key) {
            (_, Key::Refunded) => Answer::Refunded(charge),
            (_, Key::Charged) => Answer::Captured(charge),
            (Ask::Charge, _) => Answer::Declined(DeclineCode("declined".to_owned())),
            (_, _) => Answer::Fenced,
        }
    }

    fn apply(&mut self, transition: Transition) {
        let due = (!matches!(transition, Transition::Complete { .. })).then_some(PAYMENT);
        self.saga = self.saga.apply(transition, due).expect("the step makes legal transitions only");
    }

    /// All possible next states.
    fn successors(&self) -> Vec<World> {
        let mut next = self.environment();
        for replica in 0..self.charging.len() {
            next.push(self.with(|w| w.charging[replica] = Phase::Idle));
            next.push(self.with(|w| w.charging[replica] = w.charge_step(&self.charging[replica])));
        }
        for replica in 0..self.refunding.len() {
            let event = self.refund_events[replica];
            next.push(self.with(|w| w.refunding[replica] = Phase::Idle));
            next.push(self.with(|w| w.refunding[replica] = w.refund_step(&self.refunding[replica], event)));
        }
        next
    }

    fn with(&self, change: impl FnOnce(&mut World)) -> World {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    /// The actions of the environment: order, the timeout detector, the network.
    fn environment(&self) -> Vec<World> {
        let mut next = Vec::new();
        let status = self.saga.status;
        let cancel = |by_customer| {
            self.with(|w| {
                w.apply(Transition::Compensate { by_customer });
                w.published[0] = true;
            })
        };
        if status.moves_forward() {
            next.push(self.with(|w| w.apply(Transition::TimeOut)));
            next.push(cancel(true));
            if self.processed > 0 {
                next.push(self.with(|w| w.apply(Transition::Complete { step: 3 })));
            }
        }
        if matches!(status, SagaStatus::TimedOut | SagaStatus::Completed) {
            next.push(cancel(status == SagaStatus::Completed));
        }
        if self.published[0] && self.refund_events.contains(&1) {
            next.push(self.with(|w| w.published[1] = true));
        }
        if self.late_charge {
            next.push(self.with(|w| drop(w.gateway(&Ask::Charge))));
        }
        if self.late_void {
            next.push(self.with(|w| drop(w.gateway(&Ask::Void))));
        }
        next
    }

    fn charge_step(&mut self, phase: &Phase) -> Phase {
        match phase {
            Phase::Idle if self.charge_inbox => Phase::Idle,
            Phase::Idle => Phase::Read(self.saga.status.moves_forward()),
            Phase::Read(moves_forward) => {
                if *moves_forward && self.payment.is_none() {
                    self.payment = Some(Payment { status: Status::Pending, cancelled: false });
                }
                Phase::Planned(plan_of(plan_charge(self.payment.as_ref(), *moves_forward, 1_999)))
            }
            Phase::Planned(plan) => self.send(plan),
            Phase::Sent(ask) => Phase::Answered(Some(self.gateway(ask))),
            Phase::Answered(answer) => {
                if !self.charge_inbox {
                    self.apply_charge_answer(answer.as_ref());
                }
                Phase::Idle
            }
        }
    }

    fn apply_charge_answer(&mut self, answer: Option<&Answer>) {
        self.charge_inbox = true;
        let (Some(answer), Some(payment)) = (answer, self.payment.as_mut()) else { return };
        let forward = self.saga.status.moves_forward();
        let outcome = apply_charge_answer(payment, answer, forward).expect("the gateway keeps its contract");
        payment.status = outcome.status;
        match outcome.event {
            ChargeEvent::Processed(_) => {
                self.processed += 1;
                self.apply(Transition::Advance { step: 2 });
            }
            ChargeEvent::Failed(_) => self.failed += 1,
            ChargeEvent::None(_) => {}
        }
    }

    fn refund_step(&mut self, phase: &Phase, event: usize) -> Phase {
        match phase {
            Phase::Idle if !self.published[event] || self.refund_inbox[event] => Phase::Idle,
            Phase::Idle | Phase::Read(_) => {
                let tombstone = Payment { status: Status::Voided { asked: false }, cancelled: true };
                let payment = self.payment.get_or_insert(tombstone);
                payment.cancelled = true;
                Phase::Planned(plan_of(plan_refund(payment)))
            }
            Phase::Planned(plan) => self.send(plan),
            Phase::Sent(ask) => Phase::Answered(Some(self.gateway(ask))),
            Phase::Answered(answer) => {
                if !self.refund_inbox[event] {
                    self.apply_refund_answer(answer.as_ref(), event);
                }
                Phase::Idle
            }
        }
    }

    fn apply_refund_answer(&mut self, answer: Option<&Answer>, event: usize) {
        self.refund_inbox[event] = true;
        let payment = self.payment.as_mut().expect("the cancellation was written");
        payment.status = apply_refund_answer(payment, answer).expect("the gateway keeps its contract");
        let refunded = matches!(payment.status, Status::Refunded(_));
        assert!(self.receipt.is_none_or(|before| before == refunded), "two receipts, two amounts");
        self.receipt = Some(refunded);
        self.apply(Transition::Receipt { from: PAYMENT });
    }

    fn send(&mut self, plan: &PlanOf) -> Phase {
        match plan {
            Some(Ok(ask)) => {
                self.late_charge |= *ask == Ask::Charge;
                self.late_void |= *ask != Ask::Charge;
                Phase::Sent(ask.clone())
            }
            Some(Err(known)) => Phase::Answered(Some(known.clone())),
            None => Phase::Answered(None),
        }
    }

    /// The invariants of every state.
    fn check(&self) {
        assert!(self.processed + self.failed <= 1, "published twice: {self:?}");
        let holds = match self.payment.as_ref().map(|p| &p.status) {
            None => self.key == self.forgotten,
            Some(Status::Pending) => true,
            Some(Status::Captured(_)) => matches!(self.key, Key::Charged | Key::Refunded),
            Some(Status::Declined(_)) => self.key == Key::Declined || self.forgotten == Key::Fenced,
            Some(Status::Refunded(_)) => self.key == Key::Refunded,
            Some(Status::Voided { asked: true }) => matches!(self.key, Key::Fenced | Key::Declined),
            // The void, or its answer that the charge is refunded, may be in flight.
            Some(Status::Voided { asked: false }) => {
                self.receipt.is_none() || matches!(self.key, Key::Fenced | Key::Declined)
            }
        };
        assert!(holds, "the payment's row and the gateway's ledger differ: {self:?}");
        if let Some(refunded) = self.receipt {
            assert_eq!(refunded, self.key == Key::Refunded, "{self:?}");
            assert_ne!(self.key, Key::Charged, "money kept after the receipt: {self:?}");
        }
        if self.is_quiescent() {
            self.check_end();
        }
    }

    /// All published events are handled.
    fn is_quiescent(&self) -> bool {
        let idle = self.charging.iter().chain(&self.refunding).all(|phase| *phase == Phase::Idle);
        let done = (0..2)
            .all(|event| !self.published[event] || self.refund_inbox[event] || !self.refund_events.contains(&event));
        idle && done && self.charge_inbox
    }

    fn check_end(&self) {
        let can_be_paid = self.good_card && !matches!(self.forgotten, Key::Fenced | Key::Refunded);
        let paid = matches!(self.payment.as_ref().map(|p| &p.status), Some(Status::Captured(_)));
        match self.saga.status {
            SagaStatus::Started | SagaStatus::InProgress => {
                assert_eq!((self.processed, self.failed), (u8::from(can_be_paid), u8::from(!can_be_paid)));
                assert_eq!((paid, self.key == Key::Charged), (can_be_paid, can_be_paid), "{self:?}");
            }
            SagaStatus::Completed => assert!(paid && self.key == Key::Charged, "confirmed and not paid: {self:?}"),
            // Its cancellation will follow.
            SagaStatus::TimedOut => {}
            SagaStatus::Compensating | SagaStatus::Compensated | SagaStatus::Failed => {
                assert!(!paid && self.key != Key::Charged && self.receipt.is_some(), "{self:?}");
                assert_eq!(self.saga.status, SagaStatus::Compensated);
            }
        }
    }
}

fn plan_of(plan: Plan) -> PlanOf {
    match plan {
        Plan::Ask(ask) => Some(Ok(ask)),
        Plan::Known(answer) => Some(Err(answer)),
        Plan::Skip(_) => None,
    }
}

/// Explores every reachable state: there must be more than `least`, and more than ten of them quiescent.
fn explore(begun: &[(bool, Key)], charging: usize, refund_events: &'static [usize], least: usize) {
    let mut todo: Vec<World> = begun.iter().map(|known| World::new(*known, charging, refund_events)).collect();
    let mut seen: HashSet<World> = todo.iter().cloned().collect();
    let mut quiescent = 0;
    while let Some(world) = todo.pop() {
        world.check();
        quiescent += usize::from(world.is_quiescent());
        for next in world.successors() {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                todo.push(next);
            }
        }
    }
    assert!(seen.len() > least && quiescent > 10, "{} states, {quiescent} of them quiescent", seen.len());
}

/// A good card and a bad one.
const FRESH: [(bool, Key); 2] = [(true, Key::Fresh), (false, Key::Fresh)];

#[test]
fn one_replica_of_each_step() {
    explore(&FRESH, 1, &[0], 500);
}

#[test]
fn two_replicas_of_each_step() {
    explore(&FRESH, 2, &[0, 0], 10_000);
}

#[test]
fn a_repeated_cancellation() {
    explore(&FRESH, 2, &[0, 1], 10_000);
}

#[test]
fn a_payment_that_a_restored_database_lacks() {
    let known = [(true, Key::Charged), (true, Key::Refunded), (true, Key::Fenced), (false, Key::Declined)];
    explore(&known, 2, &[0, 1], 10_000);
}
