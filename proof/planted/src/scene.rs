//! One suite with one mistake or none, the orders that were placed in it and what they must come to, and what was noticed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use chaos::{Stage, stage::Replica};
use contracts::{ORDER, SERVICES};
use futures_util::future::{try_join, try_join_all};
use saga::Service;
use serde_json::{Value, json};
use testkit::eventually;
use uuid::Uuid;

use crate::oracle::{self, Finding};

/// Of this there is always enough.
pub const PLENTY: &str = "PLENTY";
pub const GOOD: &str = "tok_visa";
pub const DECLINED: &str = "tok_declined";
pub const SLOW: &str = "tok_slow";
/// How long anything may take that is bound to happen.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Scene {
    pub stage: Arc<Stage>,
    /// Orders that nothing speaks against: there is stock, the card is good, nobody cancels, and there is time.
    pub must_be_confirmed: Vec<Uuid>,
    pub findings: Vec<Finding>,
    /// Faults were armed, which must have struck by the end.
    pub armed: bool,
    /// A system was made to fail, so breakers may open.
    pub something_failed: bool,
}

impl Scene {
    pub fn new(stage: Arc<Stage>) -> Self {
        Scene { stage, must_be_confirmed: Vec::new(), findings: Vec::new(), armed: false, something_failed: false }
    }

    /// Places orders for one unit each, all at once, and returns them.
    pub async fn order(&self, count: usize, sku: &str, card: &str) -> anyhow::Result<Vec<Uuid>> {
        let order = |number: usize| async move {
            let customer = format!("customer-{number}");
            let body = json!({
                "customer_id": customer, "payment_method": card, "lines": [{"sku": sku, "quantity": 1}],
            });
            self.insist(&body).await
        };
        try_join_all((0..count).map(order)).await
    }

    /// Places orders that must be confirmed.
    pub async fn order_what_can_be_had(&mut self, count: usize) -> anyhow::Result<Vec<Uuid>> {
        let orders = self.order(count, PLENTY, GOOD).await?;
        self.must_be_confirmed.extend(&orders);
        Ok(orders)
    }

    async fn insist(&self, body: &Value) -> anyhow::Result<Uuid> {
        let key = Uuid::now_v7().to_string();
        let answer = eventually(LIMIT, async || {
            let answer = self.stage.rest.place(&self.first(ORDER).url, &key, body).await?;
            ensure!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.body);
            anyhow::Ok(Some(answer))
        })
        .await?;
        Ok(answer.body["order_id"].as_str().context("an order without an id")?.parse()?)
    }

    /// Cancels an order, as its customer.
    pub async fn cancel(&self, order: Uuid) -> anyhow::Result<()> {
        let url = format!("{}/api/orders/{order}/cancel", self.first(ORDER).url);
        eventually(LIMIT, async || {
            let answer = self.stage.rest.post(&url, &json!({"reason": "changed my mind"})).await?;
            ensure!(matches!(answer.status, 200 | 202), "{} {}", answer.status, answer.body);
            anyhow::Ok(())
        })
        .await
    }

    /// Arms a fault in all replicas of a service.
    pub async fn arm(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        self.armed = true;
        let url = format!("{}/api/admin/faults", self.first(service).url);
        let answer = self.stage.rest.post(&url, &fault).await?;
        ensure!(answer.status == 201, "{service} cannot be armed: {} {}", answer.status, answer.body);
        Ok(())
    }

    /// Disarms everything that is still armed.
    pub async fn disarm(&self) -> anyhow::Result<()> {
        for service in SERVICES {
            self.stage.rest.delete(&format!("{}/api/admin/faults", self.first(service).url)).await?;
        }
        Ok(())
    }

    /// Pauses the consumers of a step.
    pub async fn pause(&self, service: Service, step: &str) -> anyhow::Result<()> {
        self.operate(service, &format!("consumers/{step}/pause")).await
    }

    /// Ends [`Scene::pause`].
    pub async fn resume(&self, service: Service, step: &str) -> anyhow::Result<()> {
        self.operate(service, &format!("consumers/{step}/resume")).await
    }

    /// Pauses the relay of a service.
    pub async fn pause_relay(&self, service: Service) -> anyhow::Result<()> {
        self.operate(service, "relay/pause").await
    }

    /// Ends [`Scene::pause_relay`].
    pub async fn resume_relay(&self, service: Service) -> anyhow::Result<()> {
        self.operate(service, "relay/resume").await
    }

    async fn operate(&self, service: Service, what: &str) -> anyhow::Result<()> {
        let url = format!("{}/api/admin/{what}", self.first(service).url);
        let answer = self.stage.rest.post(&url, &Value::Null).await?;
        ensure!(answer.status == 200, "{service} answers {what} with {} {}", answer.status, answer.body);
        Ok(())
    }

    /// Lets one of the service's processes crash where the fault says, while orders are placed that must be confirmed all the same,
    /// and starts it again.
    pub async fn crash(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        self.something_failed = true;
        self.arm(service, fault).await?;
        let replicas = self.stage.replicas_of(service);
        let restart = async {
            let crashed = eventually(LIMIT, async || {
                for replica in &replicas {
                    if !replica.program.is_running().await {
                        return Some(Arc::clone(replica));
                    }
                }
                None
            });
            let replica = crashed.await.with_context(|| format!("{service} does not crash"))?;
            replica.program.start().await?;
            self.stage.ready_one(&replica, LIMIT).await
        };
        let (orders, ()) = try_join(self.order(3, PLENTY, GOOD), restart).await?;
        self.must_be_confirmed.extend(orders);
        Ok(())
    }

    /// Waits until this query, whose answer is a boolean, says so.
    pub async fn wait_until(&self, what: &str, query: &'static str) -> anyhow::Result<()> {
        eventually(LIMIT, async || sqlx::query_scalar::<_, bool>(query).fetch_one(&self.stage.pool).await)
            .await
            .with_context(|| format!("waited for this: {what}"))
    }

    /// How often a fault has struck.
    pub async fn hits(&self) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from saga.fault_hit").fetch_one(&self.stage.pool).await?)
    }

    /// Waits until no saga runs any more.
    pub async fn wait_for_all_ends(&self) -> anyhow::Result<()> {
        let ended = "select count(*) = 0 from saga.saga_instance
            where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING')";
        self.wait_until("every saga has ended", ended).await
    }

    /// Audits now, while there is work to do, for as long as nothing is found and the time is not over.
    pub async fn look_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while self.findings.is_empty() && Instant::now() < until {
            self.findings = oracle::at_work(&self.stage).await?;
        }
        Ok(())
    }

    /// The first replica of a service.
    pub fn first(&self, service: Service) -> Arc<Replica> {
        Arc::clone(&self.stage.replicas_of(service)[0])
    }
}
