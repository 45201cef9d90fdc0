//! Many orders: all at once, or at a rate while faults are injected.

use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, sleep},
};
use uuid::Uuid;

use super::{SAGA_TIMEOUT, ScenarioRun};
use crate::suite::{NewOrder, Order, OutboxEntry, Saga, Service, Suite, SuiteError, until};

const PARALLEL: usize = 20;
/// How long a client repeats one placement.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(40);

/// The end of an order and its saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Confirmed,
    Cancelled,
}

pub(crate) struct Crowd(JoinSet<anyhow::Result<Vec<Order>>>);

/// How many orders ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
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

    /// Begins to place orders at a rate per second. Each client tries one replica after the other, under one key, until it is
    /// answered.
    pub(crate) fn place_meanwhile(&self, orders: Vec<NewOrder>, rate: u32, replicas: Vec<Suite>) -> Crowd {
        let mut crowd = JoinSet::new();
        let record = self.record.clone();
        crowd.spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut clients = JoinSet::new();
            for (n, order) in orders.into_iter().enumerate() {
                ticks.tick().await;
                let mut replicas = replicas.clone();
                let (first, record) = (n % replicas.len().max(1), record.clone());
                replicas.rotate_left(first);
                clients.spawn(async move {
                    let order = place_somewhere(&replicas, &order).await?;
                    record.saga(order.saga_id);
                    anyhow::Ok(order)
                });
            }
            let placed = clients.join_all().await;
            placed.into_iter().collect()
        });
        Crowd(crowd)
    }

    /// The events that a service has published for these orders so far, by their journals.
    pub(crate) async fn events_of(&self, service: Service, orders: &[Order]) -> Result<Vec<Uuid>, SuiteError> {
        let sagas: Vec<Option<Saga>> = stream::iter(orders)
            .map(async |order| self.suite.saga(order.saga_id).await)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        let steps = sagas.into_iter().flatten().flat_map(|saga| saga.steps);
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
        let mut tally = Tally { pending: orders.len(), ..Tally::default() };
        let mut open: Vec<Uuid> = orders.iter().map(|order| order.order_id).collect();
        loop {
            let seen: Vec<(Uuid, Option<End>)> = stream::iter(open)
                .map(async |order_id| Ok::<_, SuiteError>((order_id, self.end_of(order_id).await?)))
                .buffer_unordered(PARALLEL)
                .try_collect()
                .await?;
            open = seen.iter().filter(|(_, end)| end.is_none()).map(|(order_id, _)| *order_id).collect();
            tally.confirmed += seen.iter().filter(|(_, end)| *end == Some(End::Confirmed)).count();
            tally.cancelled += seen.iter().filter(|(_, end)| *end == Some(End::Cancelled)).count();
            tally.pending = open.len();
            if open.is_empty() || Instant::now() >= end {
                return Ok(tally);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// How an order and its saga ended, if they have. `None` while a service cannot be reached, too.
    async fn end_of(&self, order_id: Uuid) -> Result<Option<End>, SuiteError> {
        let records = async { Ok((self.suite.saga_of(order_id).await?, self.suite.order(order_id).await?)) };
        let (saga, order) = match records.await {
            Err(error @ SuiteError::Undecodable { .. }) => return Err(error),
            Ok((Some(saga), Some(order))) => (saga, order),
            _ => return Ok(None),
        };
        Ok(match (order.status.as_str(), saga.status.as_str()) {
            ("CONFIRMED", "COMPLETED") => Some(End::Confirmed),
            ("CANCELLED", "COMPENSATED") => Some(End::Cancelled),
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
    pub(crate) async fn placed(mut self) -> anyhow::Result<Vec<Order>> {
        self.0.join_next().await.context("no orders are being placed")?.context("the orders could not be placed")?
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
