//! Whether a customer may order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Objection;

/// The status of a customer
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum CustomerStatus {
    Active,
    Suspended,
}

impl CustomerStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            CustomerStatus::Active => "ACTIVE",
            CustomerStatus::Suspended => "SUSPENDED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [CustomerStatus::Active, CustomerStatus::Suspended].into_iter().find(|s| s.as_str() == text)
    }
}

/// Why a customer of this status may not order, where customers must be known; none where they may.
pub fn object_to(customer: Option<CustomerStatus>) -> Option<Objection> {
    let detail = match customer {
        Some(CustomerStatus::Active) => return None,
        Some(CustomerStatus::Suspended) => "The customer is suspended.",
        None => "There is no such customer.",
    };
    Some(Objection::new("/customer_id", detail))
}
