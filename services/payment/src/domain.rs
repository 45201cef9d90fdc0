//! The decisions about a payment, as pure functions of its row, the saga and the gateway's answer.
//!
//! Both steps have three phases, and a crash between two phases leads to a redelivery:
//! (1) a short transaction writes the intent, (2) the gateway is called, outside any transaction, (3) one transaction claims
//! the inbox, locks saga and payment, and decides. `process_payment`: P1 writes the intent (PENDING), P2 charges with the
//! payment's id as the key, P3 records; `refund_payment`: R1 writes the cancellation, R2 voids or refunds, R3 records and
//! publishes the receipt.
//!
//! | interleaving | why it ends correctly |
//! |---|---|
//! | R1 before P1 | one row per order: P1 finds the tombstone (VOIDED, never charged) and charges nothing; R2 fences the key nevertheless |
//! | the database is restored to before P1, the gateway is not | the key is derived from the order: P2 gets the outcome of the first charge, and R2 refunds it although there is only a tombstone |
//! | P1, R1, then void before charge | the void fences the key, the charge is declined; P3 and R3, in either order, leave VOIDED |
//! | P1, R1, then charge before void | the void refunds the charge. P3 first: CAPTURED, no event, R3 makes it REFUNDED. R3 first: REFUNDED, which P3 leaves |
//! | P3 before R1 | R1 finds CAPTURED, R2 refunds by reference |
//! | P3 after the saga timed out, before R1 | the capture is recorded without an event; the `OrderCancelled` that must follow refunds it |
//! | P3 concurrent with timeout or cancellation | both need the saga's row lock: the second one sees the first |
//! | two replicas in P, same event | same key, same answer; the second claim of the inbox waits and finds it taken |
//! | two replicas in R, or a repeated `OrderCancelled` | void and refund are idempotent; a row in a final status is left unchanged, and the receipt is published again |
//! | crash after P1 or P2, no cancellation | the redelivery finds PENDING and calls again with the same key |
//! | crash after P1 or P2, then R | R2 voids, independent of the charge's outcome; the redelivery of P voids again instead of charging |
//! | crash after R1 or R2 | the redelivery calls again, unless P has ended the payment meanwhile |
//! | a charge that reaches the gateway after its caller timed out | the key is fenced, or its charge is recorded and refunded as above |
//! | a charge of a VOIDED payment succeeds (the gateway violates its contract) | [`Contradiction`]: the event fails, its redelivery voids, the row becomes REFUNDED |
//!
//! `domain/model_tests.rs` explores every interleaving of the two with a gateway that keeps its contract, and runs this
//! code; the last row has a test of its own.

use contracts::charge::MIN_AMOUNT;

/// The gateway's id of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference(pub String);

/// The gateway's code for a decline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeclineCode(pub String);

/// The status of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// The write-ahead intent: the gateway may have been called, and may have charged.
    Pending,
    Captured(Reference),
    Declined(DeclineCode),
    Refunded(Reference),
    /// Cancelled before anything was captured. If not `asked` for a charge: the tombstone of a cancellation that arrived first.
    Voided {
        asked: bool,
    },
}

impl Status {
    /// The name in the database and the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Captured(_) => "CAPTURED",
            Status::Declined(_) => "DECLINED",
            Status::Refunded(_) => "REFUNDED",
            Status::Voided { .. } => "VOIDED",
        }
    }
}

/// The part of a payment that decisions depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payment {
    pub status: Status,
    /// The order is cancelled: nothing may be charged any more.
    pub cancelled: bool,
}

/// A call to the gateway. All calls are idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Charge the card, under the payment's key.
    Charge,
    /// Refund this charge.
    Refund(Reference),
    /// Refund the charge under the payment's key, if any, and fence the key against later charges.
    Void,
}

/// A definite answer of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Captured(Reference),
    Declined(DeclineCode),
    /// The charge exists and is refunded.
    Refunded(Reference),
    /// There is no charge, and the key is fenced against later ones.
    Fenced,
}

/// What to do before the outcome can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    Ask(Ask),
    /// The answer is known without a call.
    Known(Answer),
    /// Nothing, for this reason.
    Skip(&'static str),
}

/// The event that `process_payment` publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChargeEvent {
    Processed(Reference),
    Failed(DeclineCode),
    /// None, for this reason: the journal has SKIPPED.
    None(&'static str),
}

/// The payment's new status, and the event about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeOutcome {
    pub status: Status,
    pub event: ChargeEvent,
}

/// The gateway's answer contradicts the recorded payment. The event fails and is redelivered, which calls the
/// gateway again; if the contradiction remains, the event becomes a dead letter. Operator action required.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the gateway's answer {answer:?} contradicts the payment, which is {}", .status.as_str())]
pub struct Contradiction {
    status: Status,
    answer: Option<Answer>,
}

const CANCELLED: &str = "the order was cancelled";
const TOO_LATE: &str = "the saga does not move forward any more";
const ENDED: &str = "the payment has ended already";
const NOTHING_HELD: &str = "there is nothing to refund";

/// P1, after the intents are written: the plan for a `StockReserved`. There is no payment if the saga
/// did not move forward, so no intent was written. `amount` is in minor units.
pub fn plan_charge(payment: Option<&Payment>, moves_forward: bool, amount: i64) -> Plan {
    let Some(Payment { status, cancelled }) = payment else { return Plan::Skip(TOO_LATE) };
    match status {
        Status::Declined(_) | Status::Refunded(_) | Status::Voided { asked: false } if *cancelled => {
            Plan::Skip(CANCELLED)
        }
        // An earlier delivery of this event may have charged. A refund will follow, but a void is idempotent and safe.
        _ if *cancelled => Plan::Ask(Ask::Void),
        Status::Pending if !moves_forward => Plan::Skip(TOO_LATE),
        // No card processor accepts such an amount, so no call is needed.
        Status::Pending if amount < MIN_AMOUNT => {
            Plan::Known(Answer::Declined(DeclineCode("amount_too_small".to_owned())))
        }
        Status::Pending => Plan::Ask(Ask::Charge),
        _ => Plan::Skip(ENDED),
    }
}

/// P3: the new status of the locked payment, and the event.
pub fn apply_charge_answer(
    payment: &Payment,
    answer: &Answer,
    moves_forward: bool,
) -> Result<ChargeOutcome, Contradiction> {
    let status = status_after(payment, answer)?;
    let event = match (&payment.status, &status) {
        _ if payment.cancelled => ChargeEvent::None(CANCELLED),
        _ if !moves_forward => ChargeEvent::None(TOO_LATE),
        (Status::Pending, Status::Captured(reference)) => ChargeEvent::Processed(reference.clone()),
        (Status::Pending, Status::Declined(code)) => ChargeEvent::Failed(code.clone()),
        // The charge was refunded at the gateway before it was recorded here: the order is not paid.
        (Status::Pending, Status::Refunded(_)) => ChargeEvent::Failed(DeclineCode("refunded_at_gateway".to_owned())),
        _ => ChargeEvent::None(ENDED),
    };
    Ok(ChargeOutcome { status, event })
}

/// R1, after the cancellation is written: the plan for an `OrderCancelled`.
pub fn plan_refund(payment: &Payment) -> Plan {
    match &payment.status {
        // A tombstone has no charge. But a restored database may have lost one that the gateway still has.
        Status::Pending | Status::Voided { asked: false } => Plan::Ask(Ask::Void),
        Status::Captured(reference) => Plan::Ask(Ask::Refund(reference.clone())),
        Status::Declined(_) | Status::Refunded(_) | Status::Voided { asked: true } => Plan::Skip(NOTHING_HELD),
    }
}

/// R3: the new status of the locked payment, which holds no money afterwards; `answer` is none when the gateway
/// was not called.
pub fn apply_refund_answer(payment: &Payment, answer: Option<&Answer>) -> Result<Status, Contradiction> {
    let contradiction = || Contradiction { status: payment.status.clone(), answer: answer.cloned() };
    let status = match (answer, plan_refund(payment)) {
        (Some(answer), _) => status_after(payment, answer)?,
        (None, Plan::Skip(_)) => payment.status.clone(),
        (None, _) => return Err(contradiction()),
    };
    match status {
        Status::Pending | Status::Captured(_) => Err(contradiction()),
        ended => Ok(ended),
    }
}

/// The payment's status after an answer of the gateway, for both steps. An ended payment does not change,
/// except by an answer that its charge was refunded.
fn status_after(payment: &Payment, answer: &Answer) -> Result<Status, Contradiction> {
    use Status::{Captured, Declined, Pending, Refunded, Voided};
    let status = &payment.status;
    match (status, answer) {
        (Refunded(_), _) => Ok(status.clone()),
        (_, Answer::Refunded(reference)) => Ok(Refunded(reference.clone())),
        (Pending, Answer::Captured(reference)) => Ok(Captured(reference.clone())),
        // For a cancelled order it makes no difference whether the card or our own void declined the charge.
        (Pending, Answer::Declined(_) | Answer::Fenced) if payment.cancelled => Ok(Voided { asked: true }),
        (Pending, Answer::Declined(code)) => Ok(Declined(code.clone())),
        (Captured(known), Answer::Captured(reference)) if known == reference => Ok(status.clone()),
        (Declined(_) | Voided { .. }, Answer::Declined(_) | Answer::Fenced) => Ok(status.clone()),
        _ => Err(Contradiction { status: status.clone(), answer: Some(answer.clone()) }),
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
