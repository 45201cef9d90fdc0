//! The clients of the sweep: customers with orders of all kinds, an operator, a supplier who changes products.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT};
use faults::FaultPoint;
use saga::Service;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;

use super::{Case, Shared, told::Told};
use crate::Stage;

/// The product that is changed.
pub(super) const CHANGING: &str = "CHANGING";

const ANSWER_LIMIT: Duration = Duration::from_secs(40);
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

/// An order that was accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) order_id: Uuid,
    pub(super) saga_id: Uuid,
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
                    order(&stage, wishes[number % wishes.len()], &customer, &enough, &mut told).await?;
                    number += 1;
                    if case.point == FaultPoint::HttpIn {
                        visit(&stage, case.service).await;
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
                change_product(&stage, change, number).await?;
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
    ///
    /// # Errors
    /// When somebody is not.
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
                placed.push(place(&stage, Wish::Slow, &customer).await?.order_id);
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

/// An order that is confirmed.
pub(super) async fn confirmed_order(stage: &Stage, told: &mut Told) -> anyhow::Result<Placed> {
    let for_ever = AtomicBool::new(false);
    let placed = place(stage, Wish::Plain, "customer").await?;
    told.accepted.push((placed.order_id, Wish::Plain));
    let end = end_of(stage, placed.order_id, &for_ever).await?;
    ensure!(end.as_deref() == Some("CONFIRMED"), "order {} is {end:?}", placed.order_id);
    Ok(placed)
}

/// Cancels the order, until that is answered.
pub(super) async fn cancel(stage: &Stage, order_id: Uuid) -> anyhow::Result<()> {
    let url = format!("{}/api/orders/{order_id}/cancel", url_of(stage, ORDER));
    let began = Instant::now();
    loop {
        match stage.rest.post(&url, &json!({"reason": "changed my mind"})).await {
            Ok(answer) if matches!(answer.status, 200 | 202) => return Ok(()),
            other if began.elapsed() > ANSWER_LIMIT => bail!("a cancellation is not answered: {other:?}"),
            _ => sleep(PAUSE).await,
        }
    }
}

/// Drives the saga's compensation again, until that is answered. By then it may be over.
pub(super) async fn resume(stage: &Stage, saga_id: Uuid) -> anyhow::Result<()> {
    let url = format!("{}/api/admin/sagas/{saga_id}/resume", url_of(stage, ORDER));
    let began = Instant::now();
    loop {
        match stage.rest.post(&url, &Value::Null).await {
            Ok(answer) if matches!(answer.status, 200 | 409) => return Ok(()),
            other if began.elapsed() > ANSWER_LIMIT => bail!("an operator is not answered: {other:?}"),
            _ => sleep(PAUSE).await,
        }
    }
}

async fn order(stage: &Stage, wish: Wish, customer: &str, enough: &AtomicBool, told: &mut Told) -> anyhow::Result<()> {
    let Placed { order_id, .. } = place(stage, wish, customer).await?;
    told.accepted.push((order_id, wish));
    let cancels = match wish {
        Wish::Hasty => true,
        Wish::Regretted => end_of(stage, order_id, enough).await?.as_deref() == Some("CONFIRMED"),
        _ => false,
    };
    if cancels {
        cancel(stage, order_id).await?;
        told.cancelled.push(order_id);
    }
    Ok(())
}

async fn place(stage: &Stage, wish: Wish, customer: &str) -> anyhow::Result<Placed> {
    let (sku, quantity, card) = match wish {
        Wish::TooMuch => ("SCARCE", 2, "tok_visa"),
        Wish::Declined => ("PLENTY", 1, "tok_declined"),
        Wish::Flaky => ("PLENTY", 1, "tok_flaky"),
        Wish::Slow => ("PLENTY", 1, "tok_slow"),
        Wish::Plain | Wish::Hasty | Wish::Regretted => ("PLENTY", 1, "tok_visa"),
    };
    let body = json!({
        "customer_id": customer, "payment_method": card, "lines": [{"sku": sku, "quantity": quantity}],
    });
    let placed = insist(stage, &body).await?;
    let id = |name: &str| -> anyhow::Result<Uuid> {
        let text = placed[name].as_str().with_context(|| format!("an order without its {name}: {placed}"))?;
        Ok(text.parse()?)
    };
    Ok(Placed { order_id: id("order_id")?, saga_id: id("saga_id")? })
}

async fn insist(stage: &Stage, body: &Value) -> anyhow::Result<Value> {
    let (url, key) = (url_of(stage, ORDER), Uuid::now_v7().to_string());
    let began = Instant::now();
    loop {
        match stage.rest.place(&url, &key, body).await {
            Ok(answer) if matches!(answer.status, 200 | 201) => return Ok(answer.body),
            Ok(answer) if matches!(answer.status, 400..=499) && answer.status != 409 => {
                bail!("an order is refused: {} {}", answer.status, answer.body)
            }
            other if began.elapsed() > ANSWER_LIMIT => bail!("an order is not answered: {other:?}"),
            _ => sleep(PAUSE).await,
        }
    }
}

/// How the order has ended; none when it is enough before that.
async fn end_of(stage: &Stage, order_id: Uuid, enough: &AtomicBool) -> anyhow::Result<Option<String>> {
    let url = format!("{}/api/orders/{order_id}", url_of(stage, ORDER));
    let began = Instant::now();
    while !enough.load(Ordering::Relaxed) {
        if let Ok(answer) = stage.rest.get(&url).await
            && let Some(status) = answer.body["status"].as_str()
            && matches!(status, "CONFIRMED" | "CANCELLED")
        {
            return Ok(Some(status.to_owned()));
        }
        ensure!(began.elapsed() < ANSWER_LIMIT, "order {order_id} does not end");
        sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

/// A request that every service knows: but for order, they get no others.
async fn visit(stage: &Stage, service: Service) {
    let path = if service == ORDER {
        "orders"
    } else if service == PAYMENT {
        "payments"
    } else {
        "products"
    };
    // Nobody needs the answer, and there may be none.
    let _ = stage.rest.get(&format!("{}/api/{path}", url_of(stage, service))).await;
}

async fn change_product(stage: &Stage, change: Change, number: u32) -> anyhow::Result<()> {
    let products = format!("{}/api/products", url_of(stage, INVENTORY));
    let price = json!({"amount": 1_000 + number, "currency": "USD"});
    let changing = format!("{products}/{CHANGING}");
    let answer = match change {
        Change::New => {
            let sku = format!("NEW-{}", Uuid::now_v7());
            let product = json!({"sku": sku, "name": "New", "initial_quantity": 1, "price": price});
            stage.rest.post(&products, &product).await
        }
        Change::Price => stage.rest.patch(&changing, &json!({"price": price})).await,
        Change::Name => stage.rest.patch(&changing, &json!({"name": format!("Changing {number}")})).await,
    };
    if let Ok(answer) = answer
        && matches!(answer.status, 400..=499)
    {
        bail!("a change of a product is refused: {} {}", answer.status, answer.body);
    }
    Ok(())
}

fn url_of(stage: &Stage, service: Service) -> String {
    stage.replicas_of(service)[0].url.clone()
}
