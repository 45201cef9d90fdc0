//! The values of a card processor: keys, requests, charges, declines. Pure data; two requests are the same exactly when their
//! fingerprints are equal, and the card token is never stored.

use std::borrow::Borrow;

pub use contracts::Currency;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::card::DeclineCode;

/// The caller's idempotency key: one effect per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct IdempotencyKey(String);

/// The request for a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChargeRequest {
    /// Minor units, positive.
    pub amount: i64,
    pub currency: Currency,
    /// Names the card. Never stored, never logged.
    pub token: String,
    pub order_id: Option<String>,
    pub customer_id: Option<String>,
}

/// A hash of a request's content, stored in place of its card token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(String);

/// Money taken from a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub charge_id: Uuid,
    pub idempotency_key: IdempotencyKey,
    /// Minor units.
    pub amount: i64,
    #[schema(value_type = String)]
    pub currency: Currency,
    pub order_id: Option<String>,
    pub customer_id: Option<String>,
}

/// A decline, stored for its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decline {
    pub idempotency_key: IdempotencyKey,
    pub decline_code: DeclineCode,
    /// The requested currency.
    pub currency: Currency,
}

impl IdempotencyKey {
    /// The longest key, in characters.
    pub const MAX_LENGTH: usize = 255;

    /// A key of 1 to [`Self::MAX_LENGTH`] visible ASCII characters.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for IdempotencyKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl ChargeRequest {
    /// Equal for equal requests, regardless of whitespace and field order of their JSON.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        // Each part is prefixed with its length, so that different requests never hash the same bytes.
        let mut part = |text: Option<&str>| match text {
            Some(text) => {
                hash.update(text.len().to_be_bytes());
                hash.update(text);
            }
            None => hash.update(usize::MAX.to_be_bytes()),
        };
        part(Some(&self.amount.to_string()));
        part(Some(self.currency.as_str()));
        part(Some(&self.token));
        part(self.order_id.as_deref());
        part(self.customer_id.as_deref());
        Fingerprint(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(order_id: Option<&str>, customer_id: Option<&str>) -> ChargeRequest {
        ChargeRequest {
            amount: 1_999,
            currency: Currency::USD,
            token: "tok_visa".to_owned(),
            order_id: order_id.map(str::to_owned),
            customer_id: customer_id.map(str::to_owned),
        }
    }

    #[test]
    fn keys_are_visible_ascii_of_bounded_length() {
        assert!(IdempotencyKey::parse("payment-1").is_some());
        assert!(IdempotencyKey::parse(&"k".repeat(255)).is_some());
        for bad in ["", "two words", "ключ", "nul\0", &"k".repeat(256)] {
            assert!(IdempotencyKey::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn fingerprints_differ_in_every_field() {
        let base = request(None, None).fingerprint();
        assert_eq!(base, request(None, None).fingerprint());
        assert_ne!(base, request(Some(""), None).fingerprint());
        assert_ne!(request(Some("a"), None).fingerprint(), request(None, Some("a")).fingerprint());
        assert_ne!(base, ChargeRequest { amount: 2_000, ..request(None, None) }.fingerprint());
        assert_ne!(base, ChargeRequest { token: "tok_slow".to_owned(), ..request(None, None) }.fingerprint());
    }
}
