//! Order's API: orders, their sagas, order's own view of the catalogue, and the annotations on dashboards.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    Money, ORDER, Suite, SuiteError,
    http::{Page, TIME_LIMIT},
    with_json,
};

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

    /// So many customers who order one unit each, and pay by card.
    pub fn crowd(sku: &str, count: usize, payment_method: &str) -> Vec<Self> {
        (0..count).map(|n| NewOrder::of(&format!("customer-{n}"), sku, 1, payment_method)).collect()
    }
}

/// An order as its customer sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Order {
    pub order_id: Uuid,
    pub status: String,
    pub total: Money,
    pub saga_id: Uuid,
    pub cancel_reason: Option<String>,
    pub lines: Vec<OrderLine>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

impl Order {
    pub fn is_terminal(&self) -> bool {
        self.status != "PENDING"
    }
}

/// The state of a saga; `steps` only when requested by its id.
#[derive(Debug, Clone, Deserialize)]
pub struct Saga {
    pub saga_id: Uuid,
    pub status: String,
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub deadline: OffsetDateTime,
    #[serde(default)]
    pub compensation_attempts: u16,
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
    pub event_type: String,
    /// The event that it emitted, if any.
    pub event_id: Option<Uuid>,
    pub status: String,
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    pub reason: Option<String>,
    /// The injected fault that was active, if any.
    pub fault: Option<String>,
}

impl Saga {
    /// No further step runs without an operator.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.as_str(), "COMPLETED" | "COMPENSATED" | "FAILED")
    }

    /// The step whose refusal started the compensation, if the journal was requested.
    pub fn refused_at(&self) -> Option<&SagaStep> {
        self.steps.iter().find(|step| step.status == "FAILED")
    }
}

/// The state of an order in plain sentences.
#[derive(Debug, Clone, Deserialize)]
pub struct Explanation {
    pub summary: String,
    pub findings: Vec<Obstacle>,
}

/// One fact that explains the state.
#[derive(Debug, Clone, Deserialize)]
pub struct Obstacle {
    pub kind: String,
    pub what: String,
    pub remedy: Option<Remedy>,
}

/// What an operator can do about it.
#[derive(Debug, Clone, Deserialize)]
pub struct Remedy {
    pub what: String,
}

/// A product as order knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProductView {
    pub sku: String,
    pub name: String,
    pub price: Money,
    pub status: String,
}

/// Longer than an orchestrated order is waited for.
const ORCHESTRATED_LIMIT: Duration = Duration::from_secs(35);

impl Suite {
    /// Places an order. With `wait` the answer comes when its saga has ended, or after that many seconds.
    pub async fn place(&self, order: &NewOrder, key: &str, wait: Option<u8>) -> Result<Order, SuiteError> {
        let request = self.api(Method::POST, ORDER, "orders").header("Idempotency-Key", key);
        let mut request = with_json(request, order);
        if let Some(seconds) = wait {
            request = request
                .header("Prefer", format!("wait={seconds}"))
                .timeout(TIME_LIMIT + Duration::from_secs(seconds.into()));
        }
        self.http.json(request).await
    }

    /// Places an order whose saga a coordinator drives; answered at its end, if it comes in time.
    pub async fn place_orchestrated(&self, order: &NewOrder, key: &str) -> Result<Order, SuiteError> {
        let request = self.api(Method::POST, ORDER, "orders/orchestrated").header("Idempotency-Key", key);
        let answer = self.http.json(with_json(request, order).timeout(ORCHESTRATED_LIMIT)).await;
        let cancelled = answer.as_ref().err().and_then(SuiteError::cancelled_order);
        match (cancelled, answer) {
            (Some(order_id), Err(refused)) => self.order(order_id).await?.ok_or(refused),
            (_, answer) => answer,
        }
    }

    pub async fn order(&self, order_id: Uuid) -> Result<Option<Order>, SuiteError> {
        self.http.found(self.get(ORDER, &format!("orders/{order_id}"))).await
    }

    /// All orders of a customer, newest first.
    pub async fn orders_of(&self, customer_id: &str) -> Result<Vec<Order>, SuiteError> {
        self.http.list_of(|| self.get(ORDER, &format!("orders?customer_id={customer_id}"))).await
    }

    /// A page of them.
    pub async fn latest_orders_of(&self, customer_id: &str) -> Result<Vec<Order>, SuiteError> {
        let page: Page<Order> = self.http.json(self.get(ORDER, &format!("orders?customer_id={customer_id}"))).await?;
        Ok(page.items)
    }

    pub async fn cancel(&self, order_id: Uuid, reason: &str) -> Result<(), SuiteError> {
        let request = self.api(Method::POST, ORDER, &format!("orders/{order_id}/cancel"));
        self.done(with_json(request, &json!({ "reason": reason }))).await
    }

    /// The saga of an order, without its journal.
    pub async fn saga_of(&self, order_id: Uuid) -> Result<Option<Saga>, SuiteError> {
        Ok(self.http.list_of(|| self.get(ORDER, &format!("sagas?order_id={order_id}"))).await?.pop())
    }

    /// A saga with its journal.
    pub async fn saga(&self, saga_id: Uuid) -> Result<Option<Saga>, SuiteError> {
        self.http.found(self.get(ORDER, &format!("sagas/{saga_id}"))).await
    }

    /// These sagas with their journals, as far as they exist.
    pub async fn sagas(&self, ids: impl IntoIterator<Item = Uuid>) -> Result<Vec<Saga>, SuiteError> {
        const PARALLEL: usize = 10;
        let asked = stream::iter(ids).map(|saga_id| self.saga(saga_id)).buffered(PARALLEL);
        let sagas: Vec<Option<Saga>> = asked.try_collect().await?;
        Ok(sagas.into_iter().flatten().collect())
    }

    pub async fn product_view(&self, sku: &str) -> Result<Option<ProductView>, SuiteError> {
        self.http.found(self.get(ORDER, &format!("products/{sku}"))).await
    }

    pub async fn product_views(&self) -> Result<Vec<ProductView>, SuiteError> {
        self.http.list_of(|| self.get(ORDER, "products")).await
    }

    /// Lets order make its view of the catalogue equal to inventory's.
    pub async fn rebuild_catalogue(&self) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, ORDER, "catalogue/rebuild")).await
    }

    /// Retries the compensation of a stuck saga.
    pub async fn resume_saga(&self, saga_id: Uuid) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, ORDER, &format!("sagas/{saga_id}/resume"))).await
    }

    /// The state of an order and what it waits for.
    pub async fn explain(&self, order_id: Uuid) -> Result<Explanation, SuiteError> {
        self.http.json(self.get(ORDER, &format!("orders/{order_id}/explain"))).await
    }

    /// Begins a named annotation (a band) on every dashboard; `None` if faults are not enabled, because the route does not exist
    /// then.
    pub async fn begin_annotation(&self, title: &str) -> Result<Option<Uuid>, SuiteError> {
        #[derive(Deserialize)]
        struct Begun {
            annotation_id: Uuid,
        }
        let request = with_json(self.admin(Method::POST, ORDER, "annotations"), &json!({"title": title}));
        Ok(self.http.found::<Begun>(request).await?.map(|begun| begun.annotation_id))
    }

    pub async fn end_annotation(&self, annotation_id: Uuid) -> Result<(), SuiteError> {
        self.done(self.admin(Method::POST, ORDER, &format!("annotations/{annotation_id}/end"))).await
    }
}
