//! The card processor, as far as we may rely on it: every question may be asked again, and an answer that
//! did not come means nothing. What is not an answer is an error, never a guess.

use std::{error::Error, fmt};

use contracts::{Money, OrderId, PaymentId};
use futures_util::future::BoxFuture;
use messaging::{Context, StepError};

use crate::domain::{Answer, Ask, Contradiction};

mod http;
mod measured;

pub use http::HttpGateway;
pub(crate) use measured::{GatewayMetrics, MeasuredGateway};

/// What the gateway needs to know of a payment. The same payment always says the same, because a key may not
/// be used again with another request.
#[derive(Clone, PartialEq, Eq)]
pub struct Intent {
    /// Also the idempotency key of the charge and of the void.
    pub payment_id: PaymentId,
    pub order_id: OrderId,
    pub amount: Money,
    /// The card's token; never to be logged.
    pub method: String,
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("payment_id", &self.payment_id).finish_non_exhaustive()
    }
}

/// Whoever charges cards.
pub trait PaymentGateway: Send + Sync {
    /// Asks once. A decline is an answer, and so is any other refusal of a charge: beyond doubt nothing is charged.
    fn ask<'a>(
        &'a self,
        ask: &'a Ask,
        intent: &'a Intent,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Answer, GatewayError>>;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The gateway was not reached or does not know us, so this call had no effect.
    #[error("the gateway cannot be used")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The call may have had its effect, or may have it yet: ask again.
    #[error("the outcome at the gateway is unknown")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The gateway will not give this money back, whoever asks again: an operator has to look.
    #[error("the gateway rejects the request for good, with status {status}")]
    Rejected { status: u16 },
}

impl GatewayError {
    /// Whether to ask again at once may bring an answer.
    pub fn is_unknown(&self) -> bool {
        matches!(self, GatewayError::Unknown(_))
    }
}

impl From<GatewayError> for StepError {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Unavailable(_) => StepError::unavailable(error),
            GatewayError::Unknown(_) => StepError::failed(error),
            // About this one payment: kept as a dead letter, while its saga knows what is owed.
            GatewayError::Rejected { .. } => StepError::Poison(error.into()),
        }
    }
}

impl From<Contradiction> for StepError {
    fn from(error: Contradiction) -> Self {
        StepError::failed(error)
    }
}
