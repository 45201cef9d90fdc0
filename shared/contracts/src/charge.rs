//! The limits of charges. Order and the card processor use the same ones, so order accepts nothing that the processor would
//! reject for its form.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::{Currency, Money};

/// The longest name of a customer or of a card, in characters.
pub const MAX_NAME: usize = 128;

/// The least that can be charged, in minor units.
pub const MIN_AMOUNT: i64 = 1;

/// Whether a text can name a customer or a card: 1 to [`MAX_NAME`] characters, none of them a control character.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// Money in a request. Unlike [`Money`] in an event it rejects unknown members.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Minor units.
    #[schema(minimum = 1, example = 129900)]
    pub amount: i64,
    #[schema(schema_with = crate::iso_4217_schema)]
    pub currency: Currency,
}

impl From<Price> for Money {
    fn from(Price { amount, currency }: Price) -> Money {
        Money::new(amount, currency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_in_characters() {
        for name in ["x", "é", "\u{1f4b3}"] {
            assert!(is_name(&name.repeat(MAX_NAME)) && !is_name(&name.repeat(MAX_NAME + 1)), "{name}");
        }
        assert!(!is_name("") && !is_name("tok\0visa") && !is_name("tok\u{85}visa"));
    }
}
