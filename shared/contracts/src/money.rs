//! Money is an integer of minor units with its currency; arithmetic is checked, never rounded.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ISO_4217;

/// A currency's code: three capital letters. Requests are checked against ISO 4217; stored values are not checked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Z]{3}$", example = "USD")]
pub struct Currency([u8; 3]);

/// The text is not a currency code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a currency is a code of three capital letters, such as USD")]
pub struct InvalidCurrency;

impl Currency {
    pub const USD: Currency = Currency(*b"USD");

    /// Whether it is in ISO 4217. Each currency is a label value of metrics, so their number must be bounded.
    pub fn is_listed(&self) -> bool {
        ISO_4217.binary_search(&self.as_str()).is_ok()
    }

    pub fn as_str(&self) -> &str {
        // The constructors accept only ASCII capitals.
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }
}

impl std::str::FromStr for Currency {
    type Err = InvalidCurrency;

    fn from_str(text: &str) -> Result<Self, InvalidCurrency> {
        match text.as_bytes() {
            [a, b, c] if [a, b, c].iter().all(|l| l.is_ascii_uppercase()) => Ok(Currency([*a, *b, *c])),
            _ => Err(InvalidCurrency),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = InvalidCurrency;

    fn try_from(text: String) -> Result<Self, InvalidCurrency> {
        text.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.as_str().to_owned()
    }
}

impl std::fmt::Display for Currency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An amount in minor units (cents): `{"amount": 1999, "currency": "USD"}` is 19.99 dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Money {
    /// Minor units, never negative.
    #[schema(minimum = 0, example = 129900)]
    pub amount: i64,
    pub currency: Currency,
}

/// Why amounts could not be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("the amount is larger than can be represented")]
    Overflow,
    #[error("{0} and {1} cannot be added: one order has one currency")]
    CurrencyMix(Currency, Currency),
}

impl Money {
    pub const fn new(amount: i64, currency: Currency) -> Self {
        Money { amount, currency }
    }

    pub fn checked_add(self, other: Money) -> Result<Money, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::CurrencyMix(self.currency, other.currency));
        }
        let amount = self.amount.checked_add(other.amount).ok_or(MoneyError::Overflow)?;
        Ok(Money { amount, ..self })
    }

    pub fn checked_times(self, quantity: i64) -> Result<Money, MoneyError> {
        let amount = self.amount.checked_mul(quantity).ok_or(MoneyError::Overflow)?;
        Ok(Money { amount, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_added_exactly_or_not_at_all() {
        let a = Money::new(1_999, Currency::USD);
        assert_eq!(a.checked_times(3).and_then(|m| m.checked_add(a)), Ok(Money::new(7_996, Currency::USD)));
        assert_eq!(Money::new(i64::MAX, Currency::USD).checked_add(a), Err(MoneyError::Overflow));
        assert_eq!(a.checked_times(i64::MAX), Err(MoneyError::Overflow));
        let eur = "EUR".parse().expect("a currency");
        assert!(matches!(a.checked_add(Money::new(1, eur)), Err(MoneyError::CurrencyMix(..))));
    }

    #[test]
    fn a_currency_is_three_capitals() {
        for bad in ["", "usd", "US", "USDX", "U$D", "€"] {
            assert!(bad.parse::<Currency>().is_err(), "{bad:?}");
        }
        assert_eq!("JPY".parse::<Currency>().map(|c| c.to_string()), Ok("JPY".to_owned()));
        assert!(Currency::USD.is_listed());
        for unknown in ["AAA", "XTS", "XXX", "XAU", "DEM"] {
            assert_eq!(unknown.parse::<Currency>().map(|c| c.is_listed()), Ok(false), "{unknown}");
        }
    }
}
