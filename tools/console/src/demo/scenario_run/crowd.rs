//! Many orders: all at once, or at a rate while faults are injected.

use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use super::{SAGA_TIMEOUT, ScenarioRun};
use crate::suite::{NewOrder, Order, OutboxEntry, Service, Suite, SuiteError, until};

const PARALLEL: usize = 20;
/// How long a client repeats one placement.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(40);

/// The end of an order and its saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Confirmed,
    Cancelled,
}

pub(crate) struct Crowd(JoinSet<anyhow::Result<Order>>);

/// How many orders ended how.
#[derive(Debug, PartialEq, Eq)]
struct Tally {
    confirmed: usize,
    cancelled: usize,
    pending: usize,
}

impl ScenarioRun {
    /// Places `count` orders of one unit each, all at once; each must be accepted.
    pub(crate) async fn place_all(&self, sku: &str, count: usize, card: &str) -> anyhow::Result<Vec<Order>> {
        let placed: Vec<Order> = stream::iter(NewOrder::crowd(sku, count, card))
            .map(async |order| {
                let key = Uuid::now_v7().to_string();
                self.suite.place_surely(&order, &key, SAGA_TIMEOUT).await.map(|(order, _)| order)
            })
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        placed.iter().for_each(|order| self.record.saga(order.saga_id));
        Ok(placed)
    }

    /// Begins to place so many orders of one unit each, at a rate per second. Each client tries one replica after the other,
    /// under one key, until it is answered.
    pub(crate) fn place_meanwhile(&self, sku: &str, count: usize, rate: u32, replicas: Vec<Suite>) -> Crowd {
        let (began, mut crowd) = (Instant::now(), JoinSet::new());
        for (n, order) in NewOrder::crowd(sku, count, "tok_visa").into_iter().enumerate() {
            let due = began + Duration::from_secs(1) * n as u32 / rate;
            let (mut replicas, record) = (replicas.clone(), self.record.clone());
            let first = n % replicas.len().max(1);
            replicas.rotate_left(first);
            crowd.spawn(async move {
                sleep_until(due).await;
                let order = place_somewhere(&replicas, &order).await?;
                record.saga(order.saga_id);
                anyhow::Ok(order)
            });
        }
        Crowd(crowd)
    }

    /// The events that a service has published for these orders so far, by their journals.
    pub(crate) async fn events_of(&self, service: Service, orders: &[Order]) -> Result<Vec<Uuid>, SuiteError> {
        let sagas = self.suite.sagas(orders.iter().map(|order| order.saga_id)).await?;
        let steps = sagas.into_iter().flat_map(|saga| saga.steps);
        Ok(steps.filter(|step| step.service == service.0).filter_map(|step| step.event_id).collect())
    }

    /// How many of the events have such an entry in the service's outbox.
    pub(crate) async fn count_events(
        &self,
        service: Service,
        events: &[Uuid],
        matches: impl Fn(&OutboxEntry) -> bool,
    ) -> Result<usize, SuiteError> {
        let entries: Vec<Option<OutboxEntry>> = stream::iter(events)
            .map(async |event_id| self.suite.outbox_entry(service, *event_id).await)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(entries.iter().flatten().filter(|entry| matches(entry)).count())
    }

    async fn tally(&self, orders: &[Order], limit: Duration) -> anyhow::Result<Tally> {
        let end = Instant::now() + limit;
        let ends: Vec<Option<End>> = stream::iter(orders)
            .map(async |order| {
                // After the limit the remaining orders are looked up once.
                let left = end.saturating_duration_since(Instant::now());
                until(left, || self.end_of(order.order_id)).await
            })
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        let count = |how: Option<End>| ends.iter().filter(|end| **end == how).count();
        let (confirmed, cancelled) = (count(Some(End::Confirmed)), count(Some(End::Cancelled)));
        Ok(Tally { confirmed, cancelled, pending: count(None) })
    }

    /// How an order and its saga ended, if they have.
    async fn end_of(&self, order_id: Uuid) -> Result<Option<End>, SuiteError> {
        let saga = self.suite.saga_of(order_id).await?.map(|saga| saga.status);
        let order = self.suite.order(order_id).await?.map(|order| order.status);
        Ok(match (order.as_deref(), saga.as_deref()) {
            (Some("CONFIRMED"), Some("COMPLETED")) => Some(End::Confirmed),
            (Some("CANCELLED"), Some("COMPENSATED")) => Some(End::Cancelled),
            _ => None,
        })
    }

    /// Claims that all orders end within the limit: so many confirmed, the others cancelled.
    pub(crate) async fn claim_tally(&self, orders: &[Order], confirmed: usize, limit: Duration) -> anyhow::Result<()> {
        let tally = self.tally(orders, limit).await?;
        let cancelled = orders.len() - confirmed;
        let claim = match (confirmed, cancelled) {
            (confirmed, 0) => format!("all {confirmed} orders are CONFIRMED"),
            (0, cancelled) => format!("all {cancelled} orders are CANCELLED and compensated"),
            _ => format!("{confirmed} orders are CONFIRMED, {cancelled} CANCELLED and compensated"),
        };
        self.claim_is(&claim, tally, Tally { confirmed, cancelled, pending: 0 });
        Ok(())
    }
}

impl Crowd {
    pub(crate) async fn placed(self) -> anyhow::Result<Vec<Order>> {
        self.0.join_all().await.into_iter().collect()
    }
}

/// Tries one replica after the other, under the same key, until one answers.
async fn place_somewhere(replicas: &[Suite], order: &NewOrder) -> anyhow::Result<Order> {
    let key = Uuid::now_v7().to_string();
    let mut turn = replicas.iter().cycle();
    let placed = until(PLACEMENT_TIMEOUT, || {
        let (replica, key) = (turn.next(), &key);
        async move {
            match replica {
                Some(suite) => suite.place(order, key, None).await.map(Some),
                None => Ok(None),
            }
        }
    });
    placed.await?.context("an order was not accepted")
}
