//! The participants of one test suite, and what a test asks of them over REST.

use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES};
use faults::Faults;
use serde_json::{Value, json};

use crate::{Replica, TestSuite, eventually};

/// One replica of each participant. Tests address three of them by name; the rest are in `others`.
pub struct Participants {
    pub order: Replica,
    pub inventory: Replica,
    pub payment: Replica,
    pub others: Vec<Replica>,
}

impl Participants {
    pub(crate) async fn start(suite: &TestSuite, faults: fn() -> Faults) -> anyhow::Result<Self> {
        let inventory = suite.start_with(INVENTORY, faults(), "").await?;
        let payment = suite.start_with(PAYMENT, faults(), "").await?;
        let order = suite.start_calling(ORDER, faults(), [&inventory.url, &payment.url]).await?;
        let mut participants = Participants::of(order, inventory, payment);
        for service in Self::others() {
            participants.others.push(suite.start_with(service, faults(), "").await?);
        }
        Ok(participants)
    }

    pub fn of(order: Replica, inventory: Replica, payment: Replica) -> Self {
        Participants { order, inventory, payment, others: Vec::new() }
    }

    /// Starts the other participants, too.
    pub async fn with_others(mut self, suite: &TestSuite) -> anyhow::Result<Self> {
        for service in Self::others() {
            self.others.push(suite.start(service).await?);
        }
        Ok(self)
    }

    fn others() -> impl Iterator<Item = saga::Service> {
        SERVICES.into_iter().filter(|service| ![ORDER, INVENTORY, PAYMENT].contains(service))
    }

    pub fn all(&self) -> impl Iterator<Item = &Replica> {
        [&self.order, &self.inventory, &self.payment].into_iter().chain(&self.others)
    }

    /// Creates a product and waits until it is in order's catalogue.
    pub async fn sell(&self, sku: &str, price: i64, quantity: i64) -> anyhow::Result<()> {
        self.inventory.client.create_product(sku, price, quantity).await?.expect(201)?;
        let path = format!("/api/products/{sku}");
        eventually(async || self.order.client.get(&path).await.is_ok_and(|answer| answer.status == 200))
            .await
            .with_context(|| format!("{sku} does not reach order's catalogue"))
    }

    /// Places an order and returns it.
    pub async fn place(&self, lines: &[(&str, i64)], token: &str) -> anyhow::Result<Value> {
        self.order.client.order(lines, token).await
    }

    /// Places `count` orders for one unit of A.
    pub async fn place_many(&self, count: usize, token: &str) -> anyhow::Result<Vec<Value>> {
        self.order.client.order_many(count, token).await
    }

    /// Places an order and waits until it is confirmed.
    pub async fn confirmed(&self, lines: &[(&str, i64)]) -> anyhow::Result<Value> {
        let placed = self.place(lines, "tok_visa").await?;
        self.saga_becomes(&placed, "COMPLETED").await?;
        Ok(placed)
    }

    pub async fn sagas_become(&self, orders: impl IntoIterator<Item = &Value>, status: &str) -> anyhow::Result<()> {
        for order in orders {
            self.saga_becomes(order, status).await?;
        }
        Ok(())
    }

    pub async fn saga(&self, order: &Value) -> anyhow::Result<Value> {
        self.order.client.saga(order).await
    }

    /// Waits until the order's saga has this status, and returns the saga.
    pub async fn saga_becomes(&self, order: &Value, status: &str) -> anyhow::Result<Value> {
        testkit::eventually(Duration::from_secs(20), async || {
            let saga = self.saga(order).await?;
            ensure!(saga["status"] == status, "the saga is {}: {saga:#}", saga["status"]);
            anyhow::Ok(Some(saga))
        })
        .await
    }

    /// Lets the deadline of an order expire while its payment is paused.
    pub async fn time_out(
        &self,
        suite: &TestSuite,
        placed: impl Future<Output = anyhow::Result<Value>>,
    ) -> anyhow::Result<()> {
        suite.pause(&self.payment, "process_payment").await?;
        let order = placed.await?;
        self.saga_becomes(&order, "IN_PROGRESS").await?;
        let due = sqlx::query("update saga.saga_instance set deadline = now() where business_key = $1::text::uuid");
        due.bind(order["order_id"].as_str()).execute(&suite.pool).await?;
        self.saga_becomes(&order, "COMPENSATED").await?;
        suite.resume(&self.payment, "process_payment").await
    }

    pub async fn order(&self, order: &Value) -> anyhow::Result<Value> {
        let path = format!("/api/orders/{}", order["order_id"].as_str().unwrap_or_default());
        self.order.client.get(&path).await?.expect(200)
    }

    pub async fn payment_of(&self, order: &Value) -> anyhow::Result<Option<Value>> {
        let path = format!("/api/payments?order_id={}", order["order_id"].as_str().unwrap_or_default());
        Ok(self.payment.client.get(&path).await?.expect(200)?["items"].get(0).cloned())
    }

    pub async fn product(&self, sku: &str) -> anyhow::Result<Value> {
        self.inventory.client.get(&format!("/api/products/{sku}")).await?.expect(200)
    }

    pub async fn cancel(&self, order: &Value) -> anyhow::Result<u16> {
        let path = format!("/api/orders/{}/cancel", order["order_id"].as_str().unwrap_or_default());
        Ok(self.order.client.post(&path, &json!({"reason": "changed my mind"})).await?.status)
    }
}

pub fn order_of(lines: &[(&str, i64)], token: &str) -> Value {
    let lines: Vec<_> = lines.iter().map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity})).collect();
    json!({"customer_id": "alice", "lines": lines, "payment_method": token})
}
