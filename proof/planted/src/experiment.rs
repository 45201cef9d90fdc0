//! One suite with one mistake or none, its orders with their required outcomes, and the detected violations.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use chaos::{Testbed, testbed::Replica};
use console::suite::{NewOrder, until};
use contracts::SERVICES;
use futures_util::future::{try_join, try_join_all};
use saga::Service;
use serde_json::Value;
use testkit::eventually;
use uuid::Uuid;

use crate::oracle::{self, Detection};

/// A product with ample stock.
pub const PLENTY: &str = "PLENTY";
pub const GOOD: &str = "tok_visa";
pub const DECLINED: &str = "tok_declined";
pub const SLOW: &str = "tok_slow";
/// The time limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Experiment {
    pub testbed: Arc<Testbed>,
    /// Orders with stock, a good card, no cancellation, and enough time.
    pub must_be_confirmed: Vec<Uuid>,
    pub findings: Vec<Detection>,
    /// Faults were armed, so at least one must be hit by the end.
    pub armed: bool,
    /// A system was made to fail, so breakers may open.
    pub something_failed: bool,
}

impl Experiment {
    pub fn new(testbed: Arc<Testbed>) -> Self {
        Experiment {
            testbed,
            must_be_confirmed: Vec::new(),
            findings: Vec::new(),
            armed: false,
            something_failed: false,
        }
    }

    /// Places orders for one unit each, all at once, and returns them.
    pub async fn order(&self, count: usize, sku: &str, card: &str) -> anyhow::Result<Vec<Uuid>> {
        let place = async |order: NewOrder| {
            let key = Uuid::now_v7().to_string();
            anyhow::Ok(self.testbed.suite().place_surely(&order, &key, LIMIT).await?.0.order_id)
        };
        try_join_all(NewOrder::crowd(sku, count, card).into_iter().map(place)).await
    }

    /// Places orders that must be confirmed.
    pub async fn order_available(&mut self, count: usize) -> anyhow::Result<()> {
        let orders = self.order(count, PLENTY, GOOD).await?;
        self.must_be_confirmed.extend(orders);
        Ok(())
    }

    pub async fn cancel(&self, order: Uuid) -> anyhow::Result<()> {
        until(LIMIT, async || self.testbed.suite().cancel(order, "changed my mind").await.map(Some)).await?;
        Ok(())
    }

    pub async fn arm(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        self.armed = true;
        let armed = self.testbed.suite().arm(service, &fault).await;
        armed.with_context(|| format!("{service} cannot be armed")).map(drop)
    }

    /// Disarms everything that is still armed.
    pub async fn disarm(&self) -> anyhow::Result<()> {
        for service in SERVICES {
            self.testbed.suite().disarm(service).await?;
        }
        Ok(())
    }

    /// Crashes one of the service's processes at the fault's point and starts it again, while orders are placed that must still
    /// be confirmed.
    pub async fn crash(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        self.crash_during(service, fault, async |experiment| experiment.order(3, PLENTY, GOOD).await).await
    }

    /// The same while a coordinator drives the orders' sagas.
    pub async fn crash_orchestrated(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        let place = async |experiment: &Experiment| {
            let place = async |order: NewOrder| {
                let key = Uuid::now_v7().to_string();
                let placed = experiment.testbed.suite().place_orchestrated_surely(&order, &key, LIMIT * 2).await;
                anyhow::Ok(placed?.0.order_id)
            };
            try_join_all(NewOrder::crowd(PLENTY, 3, GOOD).into_iter().map(place)).await
        };
        self.crash_during(service, fault, place).await
    }

    async fn crash_during(
        &mut self,
        service: Service,
        fault: Value,
        place: impl AsyncFnOnce(&Experiment) -> anyhow::Result<Vec<Uuid>>,
    ) -> anyhow::Result<()> {
        self.something_failed = true;
        self.arm(service, fault).await?;
        let replicas = self.testbed.replicas_of(service);
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
            self.testbed.ready_one(&replica, LIMIT).await
        };
        let (orders, ()) = try_join(place(self), restart).await?;
        self.must_be_confirmed.extend(orders);
        Ok(())
    }

    /// Waits until this query returns true.
    pub async fn wait_until(&self, what: &str, query: &'static str) -> anyhow::Result<()> {
        eventually(LIMIT, async || sqlx::query_scalar::<_, bool>(query).fetch_one(&self.testbed.pool).await)
            .await
            .with_context(|| format!("waited for this: {what}"))
    }

    /// Waits until every saga has ended.
    pub async fn wait_for_all_ends(&self) -> anyhow::Result<()> {
        let ended = "select count(*) = 0 from saga.saga_instance
            where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING')";
        self.wait_until("every saga has ended", ended).await
    }

    /// Audits repeatedly while work is in flight, until a violation is found or the time is over.
    pub async fn look_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while self.findings.is_empty() && Instant::now() < until {
            self.findings = oracle::at_work(&self.testbed).await?;
        }
        Ok(())
    }

    pub fn first(&self, service: Service) -> Arc<Replica> {
        Arc::clone(&self.testbed.replicas_of(service)[0])
    }
}
