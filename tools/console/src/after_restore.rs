//! Repairs after the database was restored to an earlier moment (a backup, a standby that lagged), while the broker and the card
//! processor kept the later state: what the database has forgotten is listed from the streams and the processor's ledger, and
//! repaired by that list.
//!
//! | of | forgotten | repaired |
//! |---|---|---|
//! | an order in flight at that moment | its later steps; consumers have acknowledged events that the inboxes do not know | by itself: its last events are published again when the streams are recreated, and the processor repeats its answer for the order's key; past its deadline it is cancelled |
//! | an order that had ended | its later cancellation and refund | here: it is cancelled again |
//! | an order accepted since | everything; its customer has received 201 | not: it is listed, and its charge is refunded here |
//! | a product | later prices, names, supplies | not: they are listed for the operator |
//!
//! The list is made before any service runs again, and then the streams are recreated (`provision renew`): an unacknowledged
//! event of the forgotten time would confirm an order whose stock and payment are forgotten, and versions, positions and sequence
//! numbers are assigned a second time. Each relay publishes again what unfinished sagas need, as after a loss of the broker's
//! data. The repair later uses the list, the ledger and the database only.

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
    /// Print the list on standard input as text
    Show,
    /// Refund the charges of forgotten orders, and repeat forgotten cancellations, by the list on standard input
    Refund,
}

/// An order as an event describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSummary {
    pub order_id: Uuid,
    pub customer_id: String,
    pub total: Money,
}

/// What the database does not know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Orders that were accepted, and are missing.
    pub orders: Vec<OrderSummary>,
    /// Orders that were confirmed, and are not confirmed now.
    pub unconfirmed: Vec<OrderSummary>,
    /// Orders that were cancelled, and are not cancelled now.
    pub uncancelled: Vec<OrderSummary>,
    /// Charges for missing orders, unknown to payment.
    pub charges: Vec<Charge>,
    /// Changes of products, and supplies.
    pub products: Vec<String>,
    /// Why the list may be incomplete.
    pub gaps: Vec<String>,
    /// What is still to be repaired.
    pub left: Vec<String>,
}

/// Lists, shows, or repairs; `Ok(false)` when something is still to be repaired.
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
    serde_json::from_reader(std::io::stdin().lock()).context("standard input is no list of `after-restore list`")
}

/// What the streams and the ledger know and the database does not. No service may run.
pub async fn list(stores: &Stores, suite: &Suite) -> anyhow::Result<Report> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let listed = read_streams(stores, &mut database).await?;
    compare(listed, suite, &mut database).await
}

/// Repairs what is still forgotten of a list, and reports what is left. Idempotent.
pub async fn refund(stores: &Stores, suite: &Suite, listed: Report) -> anyhow::Result<Report> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let mut report = compare(listed, suite, &mut database).await?;
    repair(suite, &report).await;
    report.left = compare(report.clone(), suite, &mut database).await?.left;
    Ok(report)
}

/// What of this list is still forgotten. Orders may be placed meanwhile: the ledger is read before the database, which therefore
/// knows every newer charge.
async fn compare(listed: Report, suite: &Suite, database: &mut PgConnection) -> anyhow::Result<Report> {
    let mut charges = suite.charges().await?;
    let Report { mut orders, mut unconfirmed, mut uncancelled, products, gaps, .. } = listed;
    let refunded = charges.iter().filter(|charge| charge.refunded);
    for order in confirmed_by(database, refunded.filter_map(key_of).collect()).await? {
        if uncancelled.iter().all(|known| known.order_id != order.order_id) {
            uncancelled.push(order);
        }
    }
    let named = [&orders, &unconfirmed, &uncancelled].into_iter().flatten().map(|order| order.order_id);
    let statuses = statuses_of(database, named.chain(charges.iter().filter_map(order_of)).collect()).await?;
    let captured = captured_of(database, charges.iter().filter_map(key_of).collect()).await?;
    let status = |order: &OrderSummary| statuses.get(&order.order_id).map(String::as_str);
    orders.retain(|order| status(order).is_none());
    unconfirmed.retain(|order| status(order).is_some_and(|now| now != "CONFIRMED"));
    uncancelled.retain(|order| status(order).is_some_and(|now| now != "CANCELLED"));
    // The saga of an existing order finds its charge under the order's key.
    let order_exists = |charge: &Charge| order_of(charge).is_some_and(|order_id| statuses.contains_key(&order_id));
    charges.retain(|charge| key_of(charge).is_none_or(|key| !captured.contains(&key)) && !order_exists(charge));
    let cancellations = uncancelled.iter().map(|order| format!("order {} was cancelled", order.order_id));
    let left = charges.iter().map(describe_charge).chain(cancellations).chain(gaps.iter().cloned()).collect();
    Ok(Report { orders, unconfirmed, uncancelled, charges, products, gaps, left })
}

async fn statuses_of(database: &mut PgConnection, orders: Vec<Uuid>) -> sqlx::Result<HashMap<Uuid, String>> {
    let statuses: Vec<(Uuid, String)> =
        sqlx::query_as("select order_id, status from orders.customer_order where order_id = any($1)")
            .bind(orders)
            .fetch_all(database)
            .await?;
    Ok(statuses.into_iter().collect())
}

async fn captured_of(database: &mut PgConnection, payments: Vec<Uuid>) -> sqlx::Result<HashSet<Uuid>> {
    let query = sqlx::query_scalar(
        "select payment_id from payment.payment where payment_id = any($1) and status in ('CAPTURED', 'REFUNDED')",
    );
    let captured: Vec<Uuid> = query.bind(payments).fetch_all(database).await?;
    Ok(captured.into_iter().collect())
}

/// The CONFIRMED orders of these captured payments. An order whose charge was refunded had been cancelled.
async fn confirmed_by(database: &mut PgConnection, payments: Vec<Uuid>) -> sqlx::Result<Vec<OrderSummary>> {
    let query = sqlx::query_as(
        "select o.order_id, o.customer_id, o.total_amount, o.currency
        from payment.payment p
        join orders.customer_order o using (order_id)
        where p.payment_id = any($1) and p.status = 'CAPTURED' and o.status = 'CONFIRMED'
        order by o.order_id",
    );
    let orders: Vec<(Uuid, String, i64, String)> = query.bind(payments).fetch_all(database).await?;
    let summary = |(order_id, customer_id, amount, currency)| OrderSummary {
        order_id,
        customer_id,
        total: Money { amount, currency },
    };
    Ok(orders.into_iter().map(summary).collect())
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
        match serde_json::from_slice::<OrderSummary>(&body) {
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

fn without_token(body: &[u8]) -> String {
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.as_object_mut().map(|fields| fields.remove("payment_method"));
    body.to_string()
}

/// Each repair is idempotent; the next comparison finds the failed ones.
async fn repair(suite: &Suite, report: &Report) {
    const AT_ONCE: usize = 16;
    let refunds = stream::iter(&report.charges).for_each_concurrent(AT_ONCE, |charge| async move {
        if let (Some(order_id), Some(amount), Some(currency)) =
            (order_of(charge), charge.amount, charge.currency.clone())
            && let Err(error) = suite.refund_forgotten(order_id, &Money { amount, currency }).await
        {
            eprintln!("{}: {error}", describe_charge(charge));
        }
    });
    refunds.await;
    for OrderSummary { order_id, .. } in &report.uncancelled {
        if let Err(error) = suite.cancel(*order_id, "cancelled before the database was set back").await {
            eprintln!("order {order_id}: {error}");
        }
    }
}

fn order_of(charge: &Charge) -> Option<Uuid> {
    charge.order_id.as_ref()?.parse().ok()
}

/// The payment whose id is the charge's key.
fn key_of(charge: &Charge) -> Option<Uuid> {
    charge.idempotency_key.parse().ok()
}

fn describe_charge(charge: &Charge) -> String {
    let Charge { idempotency_key, order_id, amount, currency, refunded, .. } = charge;
    let order = order_id.as_deref().unwrap_or("no order");
    let (amount, currency) = (amount.unwrap_or_default(), currency.as_deref().unwrap_or_default());
    let state = if *refunded { ", refunded and not in payment" } else { "" };
    format!("charge {idempotency_key} for {order}: {amount} {currency}{state}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders = |orders: &[OrderSummary]| -> Vec<String> {
            let describe = |OrderSummary { order_id, customer_id, total }: &OrderSummary| {
                format!("order {order_id} of {customer_id}: {} {}", total.amount, total.currency)
            };
            orders.iter().map(describe).collect()
        };
        for (what, found) in [
            ("accepted, now missing", orders(&self.orders)),
            ("confirmed, now not", orders(&self.unconfirmed)),
            ("cancelled, now not", orders(&self.uncancelled)),
            ("charged for a missing order", self.charges.iter().map(describe_charge).collect()),
            ("forgotten changes of products", self.products.clone()),
            ("gaps of this list", self.gaps.clone()),
            ("STILL to be repaired", self.left.clone()),
        ] {
            writeln!(f, "{what}: {}", found.len())?;
            found.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        let verdict = if self.left.is_empty() { "everything is repaired" } else { "repairs are left" };
        writeln!(f, "after-restore: {verdict}")
    }
}
