//! The test cards: which token is approved, which is refused and why, and in what manner the answer comes.
//! Pure; a token that is not listed here is refused, never charged.

use serde::{Deserialize, Serialize};

/// The largest amount that is ever approved, in minor units (10,000.00).
pub const MAX_AMOUNT: i64 = 1_000_000;

/// Why a charge was refused. A refusal is a stored outcome of its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclineCode {
    /// The issuer refuses (`tok_declined`, or an armed decline fault).
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

/// How the answer to a fresh charge comes. A stored answer always comes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Prompt,
    /// After a long while (`tok_slow`), longer than most callers wait.
    Slow,
    /// The first two attempts of each key fail before anything is charged (`tok_flaky`).
    Flaky,
    /// The charge is captured and the connection dropped without an answer (`tok_unknown_outcome`).
    UnknownOutcome,
}

/// The issuer's decision: `None` approves.
///
/// The card comes before the amount: an expired card stays expired however little is asked of it.
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

/// In what manner a fresh charge of this token is answered.
pub fn manner(token: &str) -> Manner {
    match token {
        "tok_slow" => Manner::Slow,
        "tok_flaky" => Manner::Flaky,
        "tok_unknown_outcome" => Manner::UnknownOutcome,
        _ => Manner::Prompt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_card_is_refused_for_the_card_before_the_amount_and_ten_thousand_is_not_too_much() {
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
