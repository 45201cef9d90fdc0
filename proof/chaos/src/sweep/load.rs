//! The clients of the sweep: customers with orders of all kinds, an operator, a supplier who changes products.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::ensure;
use console::suite::{NewOrder, NewProduct, Order, Suite, until};
use contracts::{INVENTORY, PAYMENT};
use faults::FaultPoint;
use reqwest::StatusCode;
use saga::Service;
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;

use super::{Case, Shared, told::Told};

/// The product that is changed.
pub(super) const CHANGING: &str = "CHANGING";

const ANSWER_LIMIT: Duration = Duration::from_secs(40);
/// Between two changes of a product.
const PAUSE: Duration = Duration::from_millis(30);
/// How often a customer looks what has become of an order.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Orders that are placed at a time.
const CLIENTS: usize = 4;
/// Slow orders of each client: together more than the passes that any case counts.
const SLOW_EACH: usize = 3;

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is confirmed.
    Plain,
    /// There is less in stock.
    TooMuch,
    /// The card is declined.
    Declined,
    /// The card processor fails twice before it charges.
    Flaky,
    /// The card processor does not answer before the deadline.
    Slow,
    /// It is cancelled at once.
    Hasty,
    /// It is cancelled when it is confirmed: there is stock to release and money to refund.
    Regretted,
}

pub(super) const MIX: &[Wish] =
    &[Wish::TooMuch, Wish::Declined, Wish::Flaky, Wish::Hasty, Wish::Plain, Wish::Plain, Wish::Plain, Wish::Plain];

/// What changes about products.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    New,
    Price,
    Name,
}

/// Clients at work, and what they were told.
#[derive(Default)]
pub(super) struct Crowd {
    clients: JoinSet<anyhow::Result<Told>>,
    enough: Arc<AtomicBool>,
    pub(super) told: Told,
}

impl Crowd {
    /// Clients of one customer who order until it is enough, this in turn.
    pub(super) fn of_customers(stage: &Shared, case: &Case, wishes: &'static [Wish], customer: &str) -> Self {
        let mut crowd = Crowd::default();
        for client in 0..CLIENTS {
            let (stage, enough, case) = (Arc::clone(stage), Arc::clone(&crowd.enough), *case);
            let customer = customer.to_owned();
            crowd.spawn(async move {
                let (mut told, mut number) = (Told::default(), client);
                while !enough.load(Ordering::Relaxed) {
                    order(stage.suite(), wishes[number % wishes.len()], &customer, &enough, &mut told).await?;
                    number += 1;
                    if case.point == FaultPoint::HttpIn {
                        visit(stage.suite(), case.service).await;
                    }
                }
                Ok(told)
            });
        }
        crowd
    }

    /// A supplier who changes products until it is enough.
    pub(super) fn of_suppliers(stage: &Shared, change: Change) -> Self {
        let mut crowd = Crowd::default();
        let (stage, enough) = (Arc::clone(stage), Arc::clone(&crowd.enough));
        crowd.spawn(async move {
            let mut number = 0;
            while !enough.load(Ordering::Relaxed) {
                number += 1;
                change_product(stage.suite(), change, number).await?;
                sleep(PAUSE).await;
            }
            Ok(Told::default())
        });
        crowd
    }

    pub(super) fn spawn(&mut self, client: impl Future<Output = anyhow::Result<Told>> + Send + 'static) {
        self.clients.spawn(client);
    }

    /// Nobody begins anything any more.
    pub(super) fn stop(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    /// Waits until everybody is answered.
    pub(super) async fn leave(mut self) -> anyhow::Result<Told> {
        self.stop();
        while let Some(told) = self.clients.join_next().await {
            self.told.add(told??);
        }
        Ok(self.told)
    }
}

/// Orders whose payment takes longer than they have time, placed as fast as several clients can.
pub(super) async fn place_slow_orders(stage: &Shared, customer: &str) -> anyhow::Result<Vec<Uuid>> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (stage, customer) = (Arc::clone(stage), customer.to_owned());
        clients.spawn(async move {
            let mut placed = Vec::new();
            for _ in 0..SLOW_EACH {
                placed.push(place(stage.suite(), Wish::Slow, &customer).await?.order_id);
            }
            anyhow::Ok(placed)
        });
    }
    let mut orders = Vec::new();
    while let Some(placed) = clients.join_next().await {
        orders.extend(placed??);
    }
    Ok(orders)
}

pub(super) async fn confirmed_order(suite: &Suite, told: &mut Told) -> anyhow::Result<Order> {
    let for_ever = AtomicBool::new(false);
    let placed = place(suite, Wish::Plain, "customer").await?;
    told.accepted.push((placed.order_id, Wish::Plain));
    let end = end_of(suite, placed.order_id, &for_ever).await?;
    ensure!(end.as_deref() == Some("CONFIRMED"), "order {} is {end:?}", placed.order_id);
    Ok(placed)
}

/// Cancels the order, until that is answered.
pub(super) async fn cancel(suite: &Suite, order_id: Uuid) -> anyhow::Result<()> {
    until(ANSWER_LIMIT, async || suite.cancel(order_id, "changed my mind").await.map(Some)).await?;
    Ok(())
}

/// Drives the saga's compensation again, until that is answered. By then it may be over.
pub(super) async fn resume(suite: &Suite, saga_id: Uuid) -> anyhow::Result<()> {
    let resumed = async || match suite.resume_saga(saga_id).await {
        Err(error) if error.status() == Some(StatusCode::CONFLICT) => Ok(Some(())),
        answer => answer.map(Some),
    };
    until(ANSWER_LIMIT, resumed).await?;
    Ok(())
}

async fn order(suite: &Suite, wish: Wish, customer: &str, enough: &AtomicBool, told: &mut Told) -> anyhow::Result<()> {
    let Order { order_id, .. } = place(suite, wish, customer).await?;
    told.accepted.push((order_id, wish));
    let cancels = match wish {
        Wish::Hasty => true,
        Wish::Regretted => end_of(suite, order_id, enough).await?.as_deref() == Some("CONFIRMED"),
        _ => false,
    };
    if cancels {
        cancel(suite, order_id).await?;
        told.cancelled.push(order_id);
    }
    Ok(())
}

async fn place(suite: &Suite, wish: Wish, customer: &str) -> anyhow::Result<Order> {
    let (sku, quantity, card) = match wish {
        Wish::TooMuch => ("SCARCE", 2, "tok_visa"),
        Wish::Declined => ("PLENTY", 1, "tok_declined"),
        Wish::Flaky => ("PLENTY", 1, "tok_flaky"),
        Wish::Slow => ("PLENTY", 1, "tok_slow"),
        Wish::Plain | Wish::Hasty | Wish::Regretted => ("PLENTY", 1, "tok_visa"),
    };
    let (key, order) = (Uuid::now_v7().to_string(), NewOrder::of(customer, sku, quantity, card));
    Ok(suite.place_surely(&order, &key, ANSWER_LIMIT).await?.0)
}

/// How the order has ended; none when it is enough before that.
async fn end_of(suite: &Suite, order_id: Uuid, enough: &AtomicBool) -> anyhow::Result<Option<String>> {
    let began = Instant::now();
    while !enough.load(Ordering::Relaxed) {
        if let Ok(Some(order)) = suite.order(order_id).await
            && order.is_terminal()
        {
            return Ok(Some(order.status));
        }
        ensure!(began.elapsed() < ANSWER_LIMIT, "order {order_id} does not end");
        sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

/// A request that the service knows: but for order, they get no others. Nobody needs the answer, and there may be none.
async fn visit(suite: &Suite, service: Service) {
    match service {
        INVENTORY => drop(suite.reservation(Uuid::nil()).await),
        PAYMENT => drop(suite.payment_of(Uuid::nil()).await),
        _ => drop(suite.order(Uuid::nil()).await),
    }
}

async fn change_product(suite: &Suite, change: Change, number: u32) -> anyhow::Result<()> {
    let price = i64::from(1_000 + number);
    let answer = match change {
        Change::New => suite.create_product(&NewProduct::of(&format!("NEW-{}", Uuid::now_v7()), "New", price, 1)).await,
        Change::Price => suite.change_price(CHANGING, price).await,
        Change::Name => suite.change_product(CHANGING, &json!({"name": format!("Changing {number}")})).await,
    };
    match answer {
        Err(error) if error.status().is_some_and(|status| status.is_client_error()) => Err(error.into()),
        _ => Ok(()),
    }
}
