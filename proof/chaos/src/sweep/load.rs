//! The clients of the sweep: customers with orders of all kinds, an operator, and a supplier who changes products.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::ensure;
use console::suite::{NewOrder, NewProduct, Order, Suite, until};
use contracts::{INVENTORY, PAYMENT, order_fulfillment::SAGA};
use faults::FaultPoint;
use futures_util::future::try_join_all;
use reqwest::StatusCode;
use saga::Service;
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;

use super::{Case, Shared, answers::Answers};

/// The product that is changed.
pub(super) const CHANGING: &str = "CHANGING";

const ANSWER_LIMIT: Duration = Duration::from_secs(40);
/// Between two changes of a product.
const PAUSE: Duration = Duration::from_millis(30);
/// The polling interval of customers.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The number of concurrent clients.
const CLIENTS: usize = 4;
/// Slow orders of each client: together more than the passes of any case.
const SLOW_EACH: usize = 3;

/// Kinds of orders by their outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderKind {
    /// It is confirmed.
    Plain,
    /// The stock does not suffice.
    TooMuch,
    /// The card is declined.
    Declined,
    /// The card processor fails twice before it charges.
    Flaky,
    /// The card processor takes so long to answer that the deadline can be moved before.
    Slow,
    /// It is cancelled at once.
    Hasty,
    /// It is cancelled when it is confirmed: there is stock to release and money to refund.
    Regretted,
}

pub(super) const MIX: &[OrderKind] = {
    use OrderKind::{Declined, Flaky, Hasty, Plain, TooMuch};
    &[TooMuch, Declined, Flaky, Hasty, Plain, Plain, Plain, Plain]
};

/// Kinds of product changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    New,
    Price,
    Name,
}

/// Running clients, and the answers that they got.
#[derive(Default)]
pub(super) struct Clients {
    tasks: JoinSet<anyhow::Result<Answers>>,
    stopped: Arc<AtomicBool>,
    pub(super) answers: Answers,
}

impl Clients {
    /// Clients of one customer that place these kinds of orders in turn until they are stopped.
    pub(super) fn of_customers(testbed: &Shared, case: &Case, kinds: &'static [OrderKind], customer: &str) -> Self {
        let mut clients = Clients::default();
        for client in 0..CLIENTS {
            let (testbed, stopped, case) = (Arc::clone(testbed), Arc::clone(&clients.stopped), *case);
            let customer = customer.to_owned();
            clients.spawn(async move {
                let (mut answers, mut number) = (Answers::default(), client);
                while !stopped.load(Ordering::Relaxed) {
                    order(testbed.suite(), kinds[number % kinds.len()], &customer, &stopped, &mut answers).await?;
                    number += 1;
                    if case.point == FaultPoint::HttpIn {
                        visit(testbed.suite(), case.service).await;
                    }
                }
                Ok(answers)
            });
        }
        clients
    }

    /// Clients that have a coordinator drive the sagas of their orders, of these kinds in turn, until they are stopped.
    pub(super) fn of_orchestrated(testbed: &Shared, kinds: &'static [OrderKind]) -> Self {
        let mut clients = Clients::default();
        for client in 0..CLIENTS {
            let (testbed, stopped) = (Arc::clone(testbed), Arc::clone(&clients.stopped));
            clients.spawn(async move {
                let (mut answers, mut number) = (Answers::default(), client);
                while !stopped.load(Ordering::Relaxed) {
                    let kind = kinds[number % kinds.len()];
                    answers.accepted.push((place_orchestrated(testbed.suite(), kind).await?.order_id, kind));
                    number += 1;
                }
                Ok(answers)
            });
        }
        clients
    }

    /// A supplier that changes products until it is stopped.
    pub(super) fn of_suppliers(testbed: &Shared, change: Change) -> Self {
        let mut clients = Clients::default();
        let (testbed, stopped) = (Arc::clone(testbed), Arc::clone(&clients.stopped));
        clients.spawn(async move {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                change_product(testbed.suite(), change, number).await?;
                sleep(PAUSE).await;
            }
            Ok(Answers::default())
        });
        clients
    }

    pub(super) fn spawn(&mut self, client: impl Future<Output = anyhow::Result<Answers>> + Send + 'static) {
        self.tasks.spawn(client);
    }

    /// Lets the clients finish their current requests and stop.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Stops the clients, and waits for their last answers.
    pub(super) async fn finish(mut self) -> anyhow::Result<Answers> {
        self.stop();
        while let Some(answers) = self.tasks.join_next().await {
            self.answers.add(answers??);
        }
        Ok(self.answers)
    }
}

/// Orders whose payment takes long, placed by several clients at once.
pub(super) async fn place_slow_orders(testbed: &Shared, customer: &str) -> anyhow::Result<Vec<Uuid>> {
    let client = async |_: usize| {
        let mut placed = Vec::new();
        for _ in 0..SLOW_EACH {
            placed.push(place(testbed.suite(), OrderKind::Slow, customer).await?.order_id);
        }
        anyhow::Ok(placed)
    };
    Ok(try_join_all((0..CLIENTS).map(client)).await?.concat())
}

pub(super) async fn confirmed_order(suite: &Suite, answers: &mut Answers) -> anyhow::Result<Order> {
    let for_ever = AtomicBool::new(false);
    let placed = place(suite, OrderKind::Plain, "customer").await?;
    answers.accepted.push((placed.order_id, OrderKind::Plain));
    let end = end_of(suite, placed.order_id, &for_ever).await?;
    ensure!(end.as_deref() == Some("CONFIRMED"), "order {} is {end:?}", placed.order_id);
    Ok(placed)
}

/// The same, of a saga that a coordinator has driven.
pub(super) async fn confirmed_orchestrated(suite: &Suite, answers: &mut Answers) -> anyhow::Result<Order> {
    let order = place_orchestrated(suite, OrderKind::Plain).await?;
    answers.accepted.push((order.order_id, OrderKind::Plain));
    ensure!(order.status == "CONFIRMED", "order {} is {}", order.order_id, order.status);
    Ok(order)
}

/// Repeats the request under one key until there is an answer, and the order's saga has ended as far as it can by now.
async fn place_orchestrated(suite: &Suite, kind: OrderKind) -> anyhow::Result<Order> {
    let (key, order) = (Uuid::now_v7().to_string(), wanted(kind, "customer"));
    Ok(suite.place_orchestrated_surely(&order, &key, ANSWER_LIMIT).await?.0)
}

/// Repeats the cancellation until it is answered. False when it is too late, because a step after the pivot is done.
pub(super) async fn cancel(suite: &Suite, order_id: Uuid) -> anyhow::Result<bool> {
    let cancelled = async || match suite.cancel(order_id, "changed my mind").await {
        Err(error) if error.status() == Some(StatusCode::CONFLICT) && can_come_too_late() => Ok(Some(false)),
        answer => answer.map(|()| Some(true)),
    };
    Ok(until(ANSWER_LIMIT, cancelled).await?.unwrap_or_default())
}

/// Whether a step after the saga's pivot ends the time for cancellations.
fn can_come_too_late() -> bool {
    SAGA.after_pivot().iter().any(|step| step.number > 0)
}

/// Repeats an operator's resume of the compensation until it is answered. By then the compensation may be complete.
pub(super) async fn resume(suite: &Suite, saga_id: Uuid) -> anyhow::Result<()> {
    let resumed = async || match suite.resume_saga(saga_id).await {
        Err(error) if error.status() == Some(StatusCode::CONFLICT) => Ok(Some(())),
        answer => answer.map(Some),
    };
    until(ANSWER_LIMIT, resumed).await?;
    Ok(())
}

async fn order(
    suite: &Suite,
    kind: OrderKind,
    customer: &str,
    stopped: &AtomicBool,
    answers: &mut Answers,
) -> anyhow::Result<()> {
    let Order { order_id, .. } = place(suite, kind, customer).await?;
    answers.accepted.push((order_id, kind));
    let cancels = match kind {
        OrderKind::Hasty => true,
        OrderKind::Regretted => end_of(suite, order_id, stopped).await?.as_deref() == Some("CONFIRMED"),
        _ => false,
    };
    if cancels && cancel(suite, order_id).await? {
        answers.cancelled.insert(order_id);
    }
    Ok(())
}

async fn place(suite: &Suite, kind: OrderKind, customer: &str) -> anyhow::Result<Order> {
    let (key, order) = (Uuid::now_v7().to_string(), wanted(kind, customer));
    Ok(suite.place_surely(&order, &key, ANSWER_LIMIT).await?.0)
}

fn wanted(kind: OrderKind, customer: &str) -> NewOrder {
    let (sku, quantity, card) = match kind {
        OrderKind::TooMuch => ("SCARCE", 2, "tok_visa"),
        OrderKind::Declined => ("PLENTY", 1, "tok_declined"),
        OrderKind::Flaky => ("PLENTY", 1, "tok_flaky"),
        OrderKind::Slow => ("PLENTY", 1, "tok_slow"),
        OrderKind::Plain | OrderKind::Hasty | OrderKind::Regretted => ("PLENTY", 1, "tok_visa"),
    };
    NewOrder::of(customer, sku, quantity, card)
}

/// The final status of the order; none when the clients are stopped before.
async fn end_of(suite: &Suite, order_id: Uuid, stopped: &AtomicBool) -> anyhow::Result<Option<String>> {
    let began = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
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

/// A valid request to the service, because clients send requests only to order. The answer is ignored.
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
