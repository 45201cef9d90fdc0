//! What the database has forgotten after it was set back to an earlier moment (a backup, a standby that lagged), while the
//! broker and the card processor went on: listed from the streams and the processor's ledger, and put right by that list.
//!
//! | of | it has forgotten | which comes right |
//! |---|---|---|
//! | an order under way at that moment | its later steps; consumers have acknowledged events that the inboxes do not know | by itself: its last events are published again when the streams are made anew, and the processor answers under the order's key as it did before; past its deadline it is cancelled |
//! | an order that had ended | that it was cancelled since, and refunded | here: it is cancelled again |
//! | an order accepted since | everything; its customer was told 201 | not: it is listed, and what was charged for it is given back here |
//! | a product | prices, names, supplies since | not: they are listed, for whoever made them |
//!
//! The list comes before any service runs again, and then the streams are made anew (`provision renew`): an event of the
//! forgotten time that no consumer has acknowledged would confirm an order whose stock and payment are forgotten, and
//! versions, positions and sequence numbers are given out a second time. Each relay publishes again what unfinished sagas
//! need, as after a loss of the broker's data. What is put right later follows the list, the ledger and the database only.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use anyhow::Context;
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    audit::{self, Forgotten, Stores},
    suite::{Addresses, Charge, Money, Suite},
};

/// `console after-restore`.
#[derive(Debug, clap::Args)]
pub struct AfterRestoreArgs {
    action: Action,
    #[command(flatten)]
    stores: Stores,
    #[command(flatten)]
    addresses: Addresses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Print what is forgotten as JSON, before the services run again
    List,
    /// Print the list on standard input for people
    Show,
    /// Give back what was charged for forgotten orders, and cancel again what was cancelled, by the list on standard input
    Refund,
}

/// An order as an event tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldOrder {
    pub order_id: Uuid,
    pub customer_id: String,
    pub total: Money,
}

/// What the database does not know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Orders that were accepted, and are not there.
    pub orders: Vec<ToldOrder>,
    /// Orders that were confirmed, and are not any more.
    pub unconfirmed: Vec<ToldOrder>,
    /// Orders that were cancelled, and are not any more.
    pub uncancelled: Vec<ToldOrder>,
    /// Charges for orders that are not there, of which payment knows nothing.
    pub charges: Vec<Charge>,
    /// Changes of products, and supplies.
    pub products: Vec<String>,
    /// Why the streams may have told less than was published.
    pub gaps: Vec<String>,
    /// What is left to be put right.
    pub left: Vec<String>,
}

/// Lists, shows, or puts right; `Ok(false)` when something is left to be put right after that.
pub async fn command(args: &AfterRestoreArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    match args.action {
        Action::List => println!("{}", serde_json::to_string_pretty(&list(&args.stores, &suite).await?)?),
        Action::Show => print!("{}", read_list()?),
        Action::Refund => {
            let report = refund(&args.stores, &suite, read_list()?).await?;
            print!("{report}");
            return Ok(report.left.is_empty());
        }
    }
    Ok(true)
}

fn read_list() -> anyhow::Result<Report> {
    serde_json::from_reader(std::io::stdin().lock()).context("standard input is no list of what is forgotten")
}

/// What streams and ledger know and the database does not. No service may run.
pub async fn list(stores: &Stores, suite: &Suite) -> anyhow::Result<Report> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let told = read_streams(stores, &mut database).await?;
    compare(told, suite, &mut database).await
}

/// What is still forgotten of a list, put right as far as it can be, and what is left of it then. May be repeated.
pub async fn refund(stores: &Stores, suite: &Suite, listed: Report) -> anyhow::Result<Report> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let mut report = compare(listed, suite, &mut database).await?;
    put_right(suite, &report).await;
    report.left = compare(report.clone(), suite, &mut database).await?.left;
    Ok(report)
}

/// What of this is still forgotten. Orders may be placed meanwhile: the ledger is read before the database, which knows what
/// the ledger knows.
async fn compare(told: Report, suite: &Suite, database: &mut PgConnection) -> anyhow::Result<Report> {
    let mut charges = suite.charges().await?;
    let Report { mut orders, mut unconfirmed, mut uncancelled, products, gaps, .. } = told;
    let given_back = charges.iter().filter(|charge| charge.refunded);
    for order in confirmed_by(database, given_back.filter_map(key_of).collect()).await? {
        if uncancelled.iter().all(|known| known.order_id != order.order_id) {
            uncancelled.push(order);
        }
    }
    let named = [&orders, &unconfirmed, &uncancelled].into_iter().flatten().map(|order| order.order_id);
    let statuses = statuses_of(database, named.chain(charges.iter().filter_map(order_of)).collect()).await?;
    let booked = booked_of(database, charges.iter().filter_map(key_of).collect()).await?;
    let status = |order: &ToldOrder| statuses.get(&order.order_id).map(String::as_str);
    orders.retain(|order| status(order).is_none());
    unconfirmed.retain(|order| status(order).is_some_and(|now| now != "CONFIRMED"));
    uncancelled.retain(|order| status(order).is_some_and(|now| now != "CANCELLED"));
    // The charge of an order that is there is found by its saga, under the order's key.
    let is_there = |charge: &Charge| order_of(charge).is_some_and(|order_id| statuses.contains_key(&order_id));
    charges.retain(|charge| key_of(charge).is_none_or(|key| !booked.contains(&key)) && !is_there(charge));
    let cancellations = uncancelled.iter().map(|order| format!("order {} was cancelled", order.order_id));
    let left = charges.iter().map(told_charge).chain(cancellations).chain(gaps.iter().cloned()).collect();
    Ok(Report { orders, unconfirmed, uncancelled, charges, products, gaps, left })
}

async fn statuses_of(database: &mut PgConnection, orders: Vec<Uuid>) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let statuses: Vec<(Uuid, String)> =
        sqlx::query_as("select order_id, status from orders.customer_order where order_id = any($1)")
            .bind(orders)
            .fetch_all(database)
            .await?;
    Ok(statuses.into_iter().collect())
}

/// The payments of which the database knows that they were captured.
async fn booked_of(database: &mut PgConnection, payments: Vec<Uuid>) -> Result<HashSet<Uuid>, sqlx::Error> {
    let booked: Vec<Uuid> = sqlx::query_scalar(
        "select payment_id from payment.payment where payment_id = any($1) and status in ('CAPTURED', 'REFUNDED')",
    )
    .bind(payments)
    .fetch_all(database)
    .await?;
    Ok(booked.into_iter().collect())
}

/// The CONFIRMED orders that these payments were captured for: an order whose charge was given back was cancelled.
async fn confirmed_by(database: &mut PgConnection, payments: Vec<Uuid>) -> Result<Vec<ToldOrder>, sqlx::Error> {
    let orders: Vec<(Uuid, String, i64, String)> = sqlx::query_as(
        "select o.order_id, o.customer_id, o.total_amount, o.currency
        from payment.payment p
        join orders.customer_order o using (order_id)
        where p.payment_id = any($1) and p.status = 'CAPTURED' and o.status = 'CONFIRMED'
        order by o.order_id",
    )
    .bind(payments)
    .fetch_all(database)
    .await?;
    let told = |(order_id, customer_id, amount, currency)| {
        let total = Money { amount, currency };
        ToldOrder { order_id, customer_id, total }
    };
    Ok(orders.into_iter().map(told).collect())
}

async fn read_streams(stores: &Stores, database: &mut PgConnection) -> anyhow::Result<Report> {
    const ORDERS: [&str; 3] = ["OrderCreated", "OrderConfirmed", "OrderCancelled"];
    const PRODUCTS: [&str; 4] = ["ProductCreated", "ProductPriceChanged", "ProductDetailsChanged", "StockReplenished"];
    let broker = audit::connect_broker(stores).await?;
    let kinds: Vec<&str> = ORDERS.into_iter().chain(PRODUCTS).collect();
    let (forgotten, late) = audit::forgotten(&broker, database, &kinds).await?;
    let begins =
        |stream| format!("stream {stream} begins after the restored moment: what was published before is not listed");
    let mut report = Report { gaps: late.into_iter().map(begins).collect(), ..Report::default() };
    let [mut created, mut confirmed, mut cancelled] = std::array::from_fn(|_| BTreeMap::new());
    for Forgotten { place, event, body } in forgotten {
        let orders = match event.as_str() {
            "OrderCreated" => &mut created,
            "OrderConfirmed" => &mut confirmed,
            "OrderCancelled" => &mut cancelled,
            _ => {
                report.products.push(format!("{event} {}", String::from_utf8_lossy(&body)));
                continue;
            }
        };
        match serde_json::from_slice::<ToldOrder>(&body) {
            Ok(order) => drop(orders.insert(order.order_id, order)),
            Err(error) => {
                report.gaps.push(format!("{place}, {event}, cannot be read: {error}: {}", without_token(&body)));
            }
        }
    }
    confirmed.retain(|order_id, _| !cancelled.contains_key(order_id));
    report.orders = created.into_values().collect();
    report.unconfirmed = confirmed.into_values().collect();
    report.uncancelled = cancelled.into_values().collect();
    Ok(report)
}

/// The body, without the card's token.
fn without_token(body: &[u8]) -> String {
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.as_object_mut().map(|fields| fields.remove("payment_method"));
    body.to_string()
}

/// Each may be done again; what fails is found again.
async fn put_right(suite: &Suite, report: &Report) {
    const AT_ONCE: usize = 16;
    let refunds = stream::iter(&report.charges).for_each_concurrent(AT_ONCE, |charge| async move {
        if let (Some(order_id), Some(amount), Some(currency)) =
            (order_of(charge), charge.amount, charge.currency.clone())
            && let Err(error) = suite.refund_forgotten(order_id, &Money { amount, currency }).await
        {
            eprintln!("{}: {error}", told_charge(charge));
        }
    });
    refunds.await;
    for ToldOrder { order_id, .. } in &report.uncancelled {
        if let Err(error) = suite.cancel(*order_id, "cancelled before the database was set back").await {
            eprintln!("order {order_id}: {error}");
        }
    }
}

fn order_of(charge: &Charge) -> Option<Uuid> {
    charge.order_id.as_ref()?.parse().ok()
}

/// The payment that a charge was asked for by.
fn key_of(charge: &Charge) -> Option<Uuid> {
    charge.idempotency_key.parse().ok()
}

fn told_charge(charge: &Charge) -> String {
    let Charge { idempotency_key, order_id, amount, currency, refunded, .. } = charge;
    let order = order_id.as_deref().unwrap_or("no order");
    let (amount, currency) = (amount.unwrap_or_default(), currency.as_deref().unwrap_or_default());
    format!(
        "charge {idempotency_key} for {order}: {amount} {currency}{}",
        if *refunded { ", given back and not booked" } else { "" }
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders = |orders: &[ToldOrder]| -> Vec<String> {
            let told = |ToldOrder { order_id, customer_id, total }: &ToldOrder| {
                format!("order {order_id} of {customer_id}: {} {}", total.amount, total.currency)
            };
            orders.iter().map(told).collect()
        };
        for (what, found) in [
            ("accepted, and not there any more", orders(&self.orders)),
            ("confirmed, and not any more", orders(&self.unconfirmed)),
            ("cancelled, and not any more", orders(&self.uncancelled)),
            ("charged for an order that is not there", self.charges.iter().map(told_charge).collect()),
            ("said of a product, and not known any more", self.products.clone()),
            ("not to be listed", self.gaps.clone()),
            ("LEFT to be put right", self.left.clone()),
        ] {
            writeln!(f, "{what}: {}", found.len())?;
            found.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        let verdict =
            if self.left.is_empty() { "nothing is left to be put right" } else { "something is left to be put right" };
        writeln!(f, "after-restore: {verdict}")
    }
}
