//! One suite with one mistake or none, the orders that were placed in it and what they must come to, and what was noticed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use chaos::{Stage, stage::Replica};
use console::suite::{NewOrder, until};
use contracts::SERVICES;
use futures_util::future::{try_join, try_join_all};
use saga::Service;
use serde_json::Value;
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
        let place = async |order: NewOrder| {
            let key = Uuid::now_v7().to_string();
            anyhow::Ok(self.stage.suite().place_surely(&order, &key, LIMIT).await?.0.order_id)
        };
        try_join_all(NewOrder::crowd(sku, count, card).into_iter().map(place)).await
    }

    /// Places orders that must be confirmed.
    pub async fn order_what_can_be_had(&mut self, count: usize) -> anyhow::Result<Vec<Uuid>> {
        let orders = self.order(count, PLENTY, GOOD).await?;
        self.must_be_confirmed.extend(&orders);
        Ok(orders)
    }

    pub async fn cancel(&self, order: Uuid) -> anyhow::Result<()> {
        until(LIMIT, async || self.stage.suite().cancel(order, "changed my mind").await.map(Some)).await?;
        Ok(())
    }

    pub async fn arm(&mut self, service: Service, fault: Value) -> anyhow::Result<()> {
        self.armed = true;
        let armed = self.stage.suite().arm(service, &fault).await;
        armed.with_context(|| format!("{service} cannot be armed")).map(drop)
    }

    /// Disarms everything that is still armed.
    pub async fn disarm(&self) -> anyhow::Result<()> {
        for service in SERVICES {
            self.stage.suite().disarm(service).await?;
        }
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

    pub fn first(&self, service: Service) -> Arc<Replica> {
        Arc::clone(&self.stage.replicas_of(service)[0])
    }
}
