//! What the database has forgotten after it was set back to an earlier moment (a backup, a standby that lagged), while the
//! broker and the card processor went on: found in the streams and in the processor's ledger, and put right.
//!
//! | of | it has forgotten | which comes right |
//! |---|---|---|
//! | an order under way at that moment | its later steps; consumers have acknowledged events that the inboxes do not know | by itself: its last event is published again at half its deadline, or at once when the streams are made anew, and the processor answers under the order's key as it did before; past its deadline it is cancelled |
//! | an order that had ended | that it was cancelled since, and refunded | here: it is cancelled again |
//! | an order accepted since | everything; its customer was told 201 | not: it is listed, and what was charged for it is given back here |
//! | a product | prices, names, supplies since | not: they are listed, for whoever made them |
//!
//! Steps that are given an event of a forgotten saga do nothing, but for its cancellation: that leaves a tombstone and
//! voids the charge. Versions, positions and sequence numbers are given out a second time; they order the events of a
//! stream that knows the first ones, so the streams are made anew in the end (`provision renew`), and each relay publishes
//! again what unfinished sagas need, as after a loss of the broker's data.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use anyhow::Context;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    audit::{self, Forgotten, Stores},
    suite::{Addresses, Charge, Money, Suite},
};

/// `console after-restore`.
#[derive(Debug, clap::Args)]
pub struct AfterRestoreArgs {
    #[command(flatten)]
    stores: Stores,
    #[command(flatten)]
    addresses: Addresses,
    /// Give back what was charged for orders that are forgotten, and cancel again what was cancelled
    #[arg(long)]
    refund: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// An order as an event tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldOrder {
    pub order_id: Uuid,
    pub customer_id: String,
    pub total: Money,
}

/// What the database does not know.
#[derive(Debug, Serialize)]
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
    /// What is left to be put right.
    pub left: Vec<String>,
}

/// Finds, puts right what it may, and prints the report; `Ok(false)` when something is left to be put right.
///
/// # Errors
/// When one of the stores cannot be read.
pub async fn command(args: &AfterRestoreArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let report = after_restore(&args.stores, &suite, args.refund).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report.left.is_empty())
}

/// What was forgotten, and what is left of it once it is put right, as far as that is wanted and can be done.
///
/// # Errors
/// When one of the stores cannot be read.
pub async fn after_restore(stores: &Stores, suite: &Suite, refund: bool) -> anyhow::Result<Report> {
    let mut report = find(stores, suite).await?;
    if refund && !report.left.is_empty() {
        put_right(suite, &report).await;
        report.left = find(stores, suite).await?.left;
    }
    Ok(report)
}

/// What the streams tell and the database does not know.
#[derive(Default)]
struct Told {
    created: BTreeMap<Uuid, ToldOrder>,
    confirmed: BTreeMap<Uuid, ToldOrder>,
    cancelled: BTreeMap<Uuid, ToldOrder>,
    products: Vec<String>,
}

/// Orders may be placed meanwhile: streams and ledger are read before the database, which knows what they know.
async fn find(stores: &Stores, suite: &Suite) -> anyhow::Result<Report> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let told = read_streams(stores, &mut database).await?;
    let mut charges = suite.charges().await?;
    let Told { created, mut confirmed, mut cancelled, products } = told;
    let named = [&created, &confirmed, &cancelled].into_iter().flat_map(BTreeMap::keys).copied();
    let statuses: Vec<(Uuid, String)> =
        sqlx::query_as("select order_id, status from orders.customer_order where order_id = any($1)")
            .bind(named.chain(charges.iter().filter_map(order_of)).collect::<Vec<_>>())
            .fetch_all(&mut database)
            .await?;
    let statuses: HashMap<Uuid, String> = statuses.into_iter().collect();
    let keys: Vec<Uuid> = charges.iter().filter_map(|charge| charge.idempotency_key.parse().ok()).collect();
    let booked: Vec<Uuid> = sqlx::query_scalar(
        "select payment_id from payment.payment where payment_id = any($1) and status in ('CAPTURED', 'REFUNDED')",
    )
    .bind(keys)
    .fetch_all(&mut database)
    .await?;
    let booked: HashSet<String> = booked.iter().map(Uuid::to_string).collect();

    let status = |order_id: &Uuid| statuses.get(order_id).map(String::as_str);
    confirmed.retain(|id, _| status(id).is_some_and(|now| now != "CONFIRMED") && !cancelled.contains_key(id));
    cancelled.retain(|id, _| status(id).is_some_and(|now| now != "CANCELLED"));
    // The charge of an order that is there is found by its saga, under the order's key.
    let is_there = |charge: &Charge| order_of(charge).is_some_and(|order_id| statuses.contains_key(&order_id));
    charges.retain(|charge| !booked.contains(&charge.idempotency_key) && !is_there(charge));
    let cancellations = cancelled.keys().map(|order_id| format!("order {order_id} was cancelled"));
    Ok(Report {
        left: charges.iter().map(told_charge).chain(cancellations).collect(),
        orders: created.into_values().filter(|order| status(&order.order_id).is_none()).collect(),
        unconfirmed: confirmed.into_values().collect(),
        uncancelled: cancelled.into_values().collect(),
        charges,
        products,
    })
}

async fn read_streams(stores: &Stores, database: &mut PgConnection) -> anyhow::Result<Told> {
    const ORDERS: [&str; 3] = ["OrderCreated", "OrderConfirmed", "OrderCancelled"];
    const PRODUCTS: [&str; 4] = ["ProductCreated", "ProductPriceChanged", "ProductDetailsChanged", "StockReplenished"];
    let broker = audit::connect_broker(stores).await?;
    let kinds: Vec<&str> = ORDERS.into_iter().chain(PRODUCTS).collect();
    let mut told = Told::default();
    for Forgotten { event, body } in audit::forgotten(&broker, database, &kinds).await? {
        let orders = match event.as_str() {
            "OrderCreated" => &mut told.created,
            "OrderConfirmed" => &mut told.confirmed,
            "OrderCancelled" => &mut told.cancelled,
            _ => {
                told.products.push(format!("{event} {}", String::from_utf8_lossy(&body)));
                continue;
            }
        };
        let order: ToldOrder = serde_json::from_slice(&body).with_context(|| format!("{event} cannot be read"))?;
        orders.insert(order.order_id, order);
    }
    Ok(told)
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

/// The order that a charge names.
fn order_of(charge: &Charge) -> Option<Uuid> {
    charge.order_id.as_ref()?.parse().ok()
}

fn told_charge(charge: &Charge) -> String {
    let Charge { idempotency_key, order_id, amount, currency, refunded, .. } = charge;
    let order = order_id.as_deref().unwrap_or("no order");
    let (amount, currency) = (amount.unwrap_or_default(), currency.as_deref().unwrap_or_default());
    format!("charge {idempotency_key} for {order}: {amount} {currency}{}", if *refunded { ", refunded" } else { "" })
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
            ("LEFT to be put right", self.left.clone()),
        ] {
            writeln!(f, "{what}: {}", found.len())?;
            found.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        let verdict = if self.left.is_empty() { "all of it is explained" } else { "something is left; see --refund" };
        writeln!(f, "after-restore: {verdict}")
    }
}
