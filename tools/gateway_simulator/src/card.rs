//! The test cards: which token is approved, which is declined and why, and how the answer is delivered. Pure; an unknown token is
//! declined, never charged.

use serde::{Deserialize, Serialize};

/// The largest amount that is ever approved, in minor units (10,000.00).
pub const MAX_AMOUNT: i64 = 1_000_000;

/// Why a charge was declined. A decline is a stored outcome of its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclineCode {
    /// Declined by the issuer (`tok_declined`, or an armed decline fault).
    CardDeclined,
    /// `tok_insufficient_funds`
    InsufficientFunds,
    /// `tok_expired`
    ExpiredCard,
    /// More than [`MAX_AMOUNT`].
    AmountTooLarge,
    /// A token this processor never issued.
    InvalidToken,
    /// The key was voided before a charge with it arrived.
    Voided,
}

/// How the answer to a fresh charge is delivered. A stored answer is always prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Immediately.
    Prompt,
    /// After a long delay (`tok_slow`), longer than most callers wait.
    Slow,
    /// The first two attempts of each key fail before anything is charged (`tok_flaky`).
    Flaky,
    /// The charge is captured and the connection dropped without an answer (`tok_unknown_outcome`).
    UnknownOutcome,
}

/// The issuer's decision: `None` approves.
///
/// The card is checked before the amount: an expired card is declined whatever the amount.
pub fn refusal(token: &str, amount: i64) -> Option<DeclineCode> {
    match token {
        "tok_visa" | "tok_slow" | "tok_flaky" | "tok_unknown_outcome" => {
            (amount > MAX_AMOUNT).then_some(DeclineCode::AmountTooLarge)
        }
        "tok_declined" => Some(DeclineCode::CardDeclined),
        "tok_insufficient_funds" => Some(DeclineCode::InsufficientFunds),
        "tok_expired" => Some(DeclineCode::ExpiredCard),
        _ => Some(DeclineCode::InvalidToken),
    }
}

/// How a fresh charge of this token is answered.
pub fn delivery(token: &str) -> Delivery {
    match token {
        "tok_slow" => Delivery::Slow,
        "tok_flaky" => Delivery::Flaky,
        "tok_unknown_outcome" => Delivery::UnknownOutcome,
        _ => Delivery::Prompt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_checked_before_the_amount() {
        assert_eq!(refusal("tok_expired", MAX_AMOUNT + 1), Some(DeclineCode::ExpiredCard));
        for (token, amount, refused) in [
            ("tok_visa", MAX_AMOUNT, None),
            ("tok_visa", MAX_AMOUNT + 1, Some(DeclineCode::AmountTooLarge)),
            ("", 1, Some(DeclineCode::InvalidToken)),
            ("TOK_VISA", 1, Some(DeclineCode::InvalidToken)),
        ] {
            assert_eq!(refusal(token, amount), refused, "{token} {amount}");
        }
    }
}
