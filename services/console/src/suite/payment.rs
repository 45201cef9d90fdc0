//! Payment's API: the one payment of an order.

use serde::Deserialize;
use uuid::Uuid;

use super::{Money, Suite, SuiteError};

/// A payment; its id is the key under which the gateway was asked.
#[derive(Debug, Clone, Deserialize)]
pub struct Payment {
    pub payment_id: Uuid,
    pub order_id: Uuid,
    pub amount: Money,
    pub status: String,
    pub decline_code: Option<String>,
}

impl Suite {
    pub async fn payment_of(&self, order_id: Uuid) -> Result<Option<Payment>, SuiteError> {
        let url = format!("{}/api/payments?order_id={order_id}", self.addresses.payment_url);
        Ok(self.http.list(&url).await?.pop())
    }
}
