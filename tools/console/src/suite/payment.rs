//! Payment's API: the one payment of an order.

use reqwest::Method;
use serde::Deserialize;
use uuid::Uuid;

use super::{Money, PAYMENT, Suite, SuiteError, with_json};

/// A payment; its id is the idempotency key at the gateway.
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
        Ok(self.http.list_of(|| self.get(PAYMENT, &format!("payments?order_id={order_id}"))).await?.pop())
    }

    /// Refunds the charge of an order that the database has forgotten.
    pub async fn refund_forgotten(&self, order_id: Uuid, amount: &Money) -> Result<(), SuiteError> {
        let charge = serde_json::json!({ "order_id": order_id, "amount": amount });
        let request = self.admin(Method::POST, PAYMENT, "forgotten-charges");
        self.done(with_json(request, &charge)).await
    }
}
