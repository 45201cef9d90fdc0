//! Order's API: orders, their sagas, and order's own view of the catalogue.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Money, Suite, SuiteError, TIME_LIMIT, found, json, list, text, until, with_json};

/// A customer's order, before it is placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewOrder {
    pub customer_id: String,
    pub lines: Vec<OrderLine>,
    pub payment_method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderLine {
    pub sku: String,
    pub quantity: i64,
}

impl NewOrder {
    /// An order of one line.
    pub fn of(customer_id: &str, sku: &str, quantity: i64, payment_method: &str) -> Self {
        NewOrder {
            customer_id: customer_id.to_owned(),
            lines: vec![OrderLine { sku: sku.to_owned(), quantity }],
            payment_method: payment_method.to_owned(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Consumers {
    items: Vec<Consumer>,
}

/// One of order's steps, as its administration shows it.
#[derive(Debug, Deserialize)]
struct Consumer {
    step: String,
    pulling: Option<bool>,
}

/// An order as its customer sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Order {
    pub order_id: Uuid,
    pub status: String,
    pub total: Money,
    pub saga_id: Uuid,
    pub cancel_reason: Option<String>,
}

impl Order {
    pub fn is_terminal(&self) -> bool {
        self.status != "PENDING"
    }
}

/// Where a saga stands; `steps` only when it was asked for by its own id.
#[derive(Debug, Clone, Deserialize)]
pub struct Saga {
    pub saga_id: Uuid,
    pub status: String,
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub deadline: OffsetDateTime,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub completed_at: Option<OffsetDateTime>,
    pub failed_at_step: Option<String>,
    pub failure_reason: Option<String>,
    #[serde(default)]
    pub receipts_due: Vec<String>,
    #[serde(default)]
    pub steps: Vec<SagaStep>,
}

/// An entry of the saga's journal.
#[derive(Debug, Clone, Deserialize)]
pub struct SagaStep {
    pub position: i64,
    pub step: String,
    pub service: String,
    pub status: String,
    pub reason: Option<String>,
}

impl Saga {
    /// Nothing more happens by itself.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.as_str(), "COMPLETED" | "COMPENSATED" | "FAILED")
    }

    /// The step whose refusal made it turn back, if its journal was asked for.
    pub fn refused_at(&self) -> Option<&SagaStep> {
        self.steps.iter().find(|step| step.status == "FAILED")
    }
}

/// A product as order knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProductView {
    pub sku: String,
    pub name: String,
    pub price: Money,
    pub status: String,
}

impl Suite {
    /// Places an order. With `wait` the answer comes when its saga has ended, or after that many seconds.
    pub async fn place(&self, order: &NewOrder, key: &str, wait: Option<u8>) -> Result<Order, SuiteError> {
        let url = format!("{}/api/orders", self.addresses.order_url);
        let mut request = with_json(self.http.post(&url), order).header("Idempotency-Key", key);
        if let Some(seconds) = wait {
            request = request
                .header("Prefer", format!("wait={seconds}"))
                .timeout(TIME_LIMIT + Duration::from_secs(seconds.into()));
        }
        json(request, &format!("POST {url}")).await
    }

    pub async fn order(&self, order_id: Uuid) -> Result<Option<Order>, SuiteError> {
        let url = format!("{}/api/orders/{order_id}", self.addresses.order_url);
        found(self.http.get(&url), &format!("GET {url}")).await
    }

    pub async fn cancel(&self, order_id: Uuid, reason: &str) -> Result<(), SuiteError> {
        let url = format!("{}/api/orders/{order_id}/cancel", self.addresses.order_url);
        let request = with_json(self.http.post(&url), &serde_json::json!({ "reason": reason }));
        text(request, &format!("POST {url}")).await.map(drop)
    }

    /// The saga of an order, without its journal.
    pub async fn saga_of(&self, order_id: Uuid) -> Result<Option<Saga>, SuiteError> {
        let url = format!("{}/api/sagas?order_id={order_id}", self.addresses.order_url);
        Ok(list(&self.http, &url).await?.pop())
    }

    /// A saga with its journal.
    pub async fn saga(&self, saga_id: Uuid) -> Result<Option<Saga>, SuiteError> {
        let url = format!("{}/api/sagas/{saga_id}", self.addresses.order_url);
        found(self.http.get(&url), &format!("GET {url}")).await
    }

    pub async fn product_view(&self, sku: &str) -> Result<Option<ProductView>, SuiteError> {
        let url = format!("{}/api/products/{sku}", self.addresses.order_url);
        found(self.http.get(&url), &format!("GET {url}")).await
    }

    pub async fn product_views(&self) -> Result<Vec<ProductView>, SuiteError> {
        list(&self.http, &format!("{}/api/products", self.addresses.order_url)).await
    }

    /// Lets order stop or go on consuming for one of its steps; returns when it has stopped.
    pub async fn pause_consumer(&self, step: &str, pause: bool) -> Result<(), SuiteError> {
        let verb = if pause { "pause" } else { "resume" };
        let url = format!("{}/api/admin/consumers/{step}/{verb}", self.addresses.order_url);
        let request = self.http.post(&url).bearer_auth(&self.addresses.admin_token);
        text(request, &format!("POST {url}")).await?;
        if pause {
            until(Duration::from_secs(10), async || Ok((!self.is_pulling(step).await?).then_some(()))).await?;
        }
        Ok(())
    }

    async fn is_pulling(&self, step: &str) -> Result<bool, SuiteError> {
        let url = format!("{}/api/admin/consumers", self.addresses.order_url);
        let request = self.http.get(&url).bearer_auth(&self.addresses.admin_token);
        let consumers: Consumers = json(request, &format!("GET {url}")).await?;
        Ok(consumers.items.iter().any(|consumer| consumer.step == step && consumer.pulling != Some(false)))
    }

    /// Lets order make its view of the catalogue equal to inventory's.
    pub async fn rebuild_catalogue(&self) -> Result<(), SuiteError> {
        let url = format!("{}/api/admin/catalogue/rebuild", self.addresses.order_url);
        let request = self.http.post(&url).bearer_auth(&self.addresses.admin_token);
        text(request, &format!("POST {url}")).await.map(drop)
    }
}
