//! Typed ids and names, which the compiler keeps apart.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::{Builder, Uuid, Version};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! drawn {
    ($name:ident) => {
        impl $name {
            /// A new id (UUIDv7: grows with time, so indexes stay dense; never used for order).
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

id!(
    /// An order.
    OrderId
);
drawn!(OrderId);
id!(
    /// One run of a saga.
    SagaId
);
drawn!(SagaId);
id!(
    /// A payment; also the idempotency key of its calls to the gateway.
    PaymentId
);

impl PaymentId {
    /// The payment of this order. It is derived from the order's id, so a database that was restored to an earlier state derives
    /// the same key again. It is the order's id as a UUIDv8, and so grows with time, too.
    pub fn of(order: OrderId) -> Self {
        Self(Builder::from_bytes(order.0.into_bytes()).with_version(Version::Custom).into_uuid())
    }
}

/// A stock keeping unit: 1 to 64 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[!-~]{1,64}$", example = "LAPTOP-15")]
pub struct Sku(String);

/// The text is not a SKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a SKU has 1 to 64 visible ASCII characters")]
pub struct InvalidSku;

impl Sku {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Sku {
    type Error = InvalidSku;

    fn try_from(text: String) -> Result<Self, InvalidSku> {
        let valid = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if valid { Ok(Sku(text)) } else { Err(InvalidSku) }
    }
}

impl From<Sku> for String {
    fn from(sku: Sku) -> String {
        sku.0
    }
}

impl std::fmt::Display for Sku {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_one_payment_id_of_its_own() {
        let (order, other) = (OrderId::new(), OrderId::new());
        assert_eq!(PaymentId::of(order), PaymentId::of(order));
        assert_ne!(PaymentId::of(order), PaymentId::of(other));
        assert_ne!(PaymentId::of(order).0, order.0);
        assert_eq!(PaymentId::of(order) < PaymentId::of(other), order < other);
    }
}
