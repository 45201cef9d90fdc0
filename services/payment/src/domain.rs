//! What is done about a payment: pure decisions over its row, the saga and the gateway's answer.
//!
//! Both steps work in three phases, and a crash between any two of them only means a redelivery:
//! (1) a short transaction that writes down what is about to happen, (2) the gateway is asked, outside any
//! transaction, (3) one transaction claims the inbox, locks saga and payment, and decides. `process_payment`
//! writes P1 the intent (PENDING), P2 charges under the payment's id, P3 records; `refund_payment` writes R1
//! the cancellation, R2 voids or refunds, R3 records and gives its receipt.
//!
//! | what meets what | why it ends right |
//! |---|---|
//! | R1 before P1 | one row an order: P1 finds the tombstone (VOIDED, never asked for a charge) and charges nothing; R2 fences the key all the same |
//! | the database is set back to before P1, the gateway is not | the key follows from the order: P2 is told what became of the first charge, and R2 gives it back although there is only a tombstone |
//! | P1, R1, then void before charge | the void fences the key, the charge is declined; P3 and R3, in either order, leave VOIDED |
//! | P1, R1, then charge before void | the void gives the charge back. P3 first: CAPTURED, nothing told, R3 makes it REFUNDED. R3 first: REFUNDED, which P3 leaves |
//! | P3 before R1 | R1 finds CAPTURED, R2 refunds by reference |
//! | P3 after the saga timed out, before R1 | the capture is recorded and not told; the `OrderCancelled` that must follow refunds it |
//! | P3 against timeout or cancel | both need the saga's row lock: who comes second sees the first |
//! | two replicas in P, same event | same key, same answer; the second claim of the inbox waits and finds it taken |
//! | two replicas in R, or a repeated `OrderCancelled` | void and refund are idempotent; a row at its end is left as it is, and the receipt is given again |
//! | crash after P1 or P2, no cancellation | the redelivery finds PENDING and asks again under the same key |
//! | crash after P1 or P2, then R | R2 voids, whatever became of the charge; the redelivery of P voids again instead of charging |
//! | crash after R1 or R2 | the redelivery asks again, unless P has ended the payment meanwhile |
//! | a charge that reaches the gateway after everybody gave up on it | the key is fenced, or its charge is recorded and refunded as above |
//! | a charge of a VOIDED payment goes through (the gateway broke its word) | [`Contradiction`]: the event fails, its redelivery voids, the row becomes REFUNDED |
//!
//! `domain/model_tests.rs` walks through every interleaving of the two with a gateway that keeps its word, and runs this
//! very code; the last row is tested on its own.

use contracts::charge::MIN_AMOUNT;

/// The gateway's name for a charge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference(pub String);

/// Why a card was declined, in the gateway's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeclineCode(pub String);

/// Where a payment stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// The write-ahead intent: the gateway may have been asked, and may have charged.
    Pending,
    Captured(Reference),
    Declined(DeclineCode),
    Refunded(Reference),
    /// Cancelled before anything was captured. Never `asked` for a charge: the tombstone of a cancellation that came first.
    Voided {
        asked: bool,
    },
}

impl Status {
    /// As the database and the API name it.
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

/// A payment, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payment {
    pub status: Status,
    /// The order's cancellation has been seen: nothing may be charged any more.
    pub cancelled: bool,
}

/// What the gateway is asked to do. Each may be asked any number of times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Charge the card, under the payment's key.
    Charge,
    /// Give this charge back.
    Refund(Reference),
    /// Make sure that the payment's key holds no money, now and for ever.
    Void,
}

/// What the gateway has said, beyond doubt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Captured(Reference),
    Declined(DeclineCode),
    /// The charge exists and was given back.
    GivenBack(Reference),
    /// There is no charge, and there never will be one.
    Fenced,
}

/// What has to happen before an event can be settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    Ask(Ask),
    /// The gateway need not be asked to know the answer.
    Known(Answer),
    /// Nothing, and why.
    Skip(&'static str),
}

/// What `process_payment` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    Processed(Reference),
    Failed(DeclineCode),
    /// Nothing, and why: the journal says SKIPPED.
    Nothing(&'static str),
}

/// What becomes of a payment, and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub status: Status,
    pub tell: Tell,
}

/// The gateway's answer cannot be true of this payment. The event fails and is delivered again, which asks
/// anew from what is recorded; if that does not help it becomes a dead letter for people to look at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the gateway's answer {answer:?} contradicts the payment, which is {}", .status.as_str())]
pub struct Contradiction {
    status: Status,
    answer: Option<Answer>,
}

const CANCELLED: &str = "the order was cancelled";
const TOO_LATE: &str = "the saga does not move forward any more";
const SETTLED: &str = "the payment was settled before";
const AT_ITS_END: &str = "there is nothing to give back";

/// P1, after the intents are written: what to ask for a `StockReserved`. There is no payment when the saga
/// did not move forward and nothing was intended. `amount` is in minor units.
pub fn plan_charge(payment: Option<&Payment>, moves_forward: bool, amount: i64) -> Plan {
    let Some(Payment { status, cancelled }) = payment else { return Plan::Skip(TOO_LATE) };
    match status {
        Status::Declined(_) | Status::Refunded(_) | Status::Voided { asked: false } if *cancelled => {
            Plan::Skip(CANCELLED)
        }
        // An earlier delivery of this event may have charged. Its refund is on its way, but to make sure is cheap.
        _ if *cancelled => Plan::Ask(Ask::Void),
        Status::Pending if !moves_forward => Plan::Skip(TOO_LATE),
        // No card processor charges nothing; there is no need to hear it from ours.
        Status::Pending if amount < MIN_AMOUNT => {
            Plan::Known(Answer::Declined(DeclineCode("amount_too_small".to_owned())))
        }
        Status::Pending => Plan::Ask(Ask::Charge),
        _ => Plan::Skip(SETTLED),
    }
}

/// P3: what becomes of the locked payment, and what is said.
pub fn settle_charge(payment: &Payment, answer: &Answer, moves_forward: bool) -> Result<Settled, Contradiction> {
    let status = record(payment, answer)?;
    let tell = match (&payment.status, &status) {
        _ if payment.cancelled => Tell::Nothing(CANCELLED),
        _ if !moves_forward => Tell::Nothing(TOO_LATE),
        (Status::Pending, Status::Captured(reference)) => Tell::Processed(reference.clone()),
        (Status::Pending, Status::Declined(code)) => Tell::Failed(code.clone()),
        // Somebody at the gateway gave the charge back before we knew of it: the order is not paid.
        (Status::Pending, Status::Refunded(_)) => Tell::Failed(DeclineCode("refunded_at_gateway".to_owned())),
        _ => Tell::Nothing(SETTLED),
    };
    Ok(Settled { status, tell })
}

/// R1, after the cancellation is written: what to ask for an `OrderCancelled`.
pub fn plan_refund(payment: &Payment) -> Plan {
    match &payment.status {
        // A tombstone knows of no charge. If the database has forgotten one, the gateway has not.
        Status::Pending | Status::Voided { asked: false } => Plan::Ask(Ask::Void),
        Status::Captured(reference) => Plan::Ask(Ask::Refund(reference.clone())),
        Status::Declined(_) | Status::Refunded(_) | Status::Voided { asked: true } => Plan::Skip(AT_ITS_END),
    }
}

/// R3: what becomes of the locked payment. It holds no money afterwards; `answer` is none when the gateway
/// was not asked.
pub fn settle_refund(payment: &Payment, answer: Option<&Answer>) -> Result<Status, Contradiction> {
    let contradiction = || Contradiction { status: payment.status.clone(), answer: answer.cloned() };
    let status = match (answer, plan_refund(payment)) {
        (Some(answer), _) => record(payment, answer)?,
        (None, Plan::Skip(_)) => payment.status.clone(),
        (None, _) => return Err(contradiction()),
    };
    match status {
        Status::Pending | Status::Captured(_) => Err(contradiction()),
        at_its_end => Ok(at_its_end),
    }
}

/// What the payment becomes by an answer of the gateway, whoever asked. A payment at its end stays there,
/// unless there is proof that money was taken and given back.
fn record(payment: &Payment, answer: &Answer) -> Result<Status, Contradiction> {
    use Status::{Captured, Declined, Pending, Refunded, Voided};
    let status = &payment.status;
    match (status, answer) {
        (Refunded(_), _) => Ok(status.clone()),
        (_, Answer::GivenBack(reference)) => Ok(Refunded(reference.clone())),
        (Pending, Answer::Captured(reference)) => Ok(Captured(reference.clone())),
        // Whether the card or our own void declined it makes no difference to a cancelled order.
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
