//! The contract of the card processor: every call is idempotent, and a missing answer says nothing about the outcome.
//! Anything but a definite answer is an error.

use std::{error::Error, fmt};

use contracts::{Money, OrderId, PaymentId};
use futures_util::future::BoxFuture;
use messaging::{Context, StepError};

use crate::domain::{Answer, Ask, Contradiction};

mod http;
mod measured;

pub use http::HttpGateway;
pub(crate) use measured::{GatewayMetrics, MeasuredGateway};

/// The payment's data for calls. They never change, because an idempotency key must not be reused with another request.
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

/// A card processor.
pub trait PaymentGateway: Send + Sync {
    /// Makes one call. A decline is an answer, and so is any other definite refusal of a charge.
    fn ask<'a>(
        &'a self,
        ask: &'a Ask,
        intent: &'a Intent,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Answer, GatewayError>>;
}

/// The reasons for a missing answer.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The gateway was not reached, or rejected our credentials, so this call had no effect.
    #[error("the gateway is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The call may have had its effect, or may have it later: call again.
    #[error("the outcome at the gateway is unknown")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The gateway rejects the refund or void permanently. Operator action required.
    #[error("the gateway rejects the request permanently, with status {status}")]
    Rejected { status: u16 },
}

impl GatewayError {
    /// Whether an immediate retry may get an answer.
    pub fn is_unknown(&self) -> bool {
        matches!(self, GatewayError::Unknown(_))
    }
}

impl From<GatewayError> for StepError {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Unavailable(_) => StepError::unavailable(error),
            GatewayError::Unknown(_) => StepError::failed(error),
            // Concerns this payment only: a dead letter, while its saga waits for the receipt.
            GatewayError::Rejected { .. } => StepError::Poison(error.into()),
        }
    }
}

impl From<Contradiction> for StepError {
    fn from(error: Contradiction) -> Self {
        StepError::failed(error)
    }
}
