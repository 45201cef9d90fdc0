//! 4: many buyers, few units. No unit is sold twice and none stays unsold.

use std::time::Duration;

use anyhow::Context;
use futures_util::future;
use uuid::Uuid;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{NewOrder, Saga, Suite},
};

const UNITS: i64 = 5;
const BUYERS: usize = 50;
/// For one purchase beside all others.
const PURCHASE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product with little stock", UNITS, 9_900).await?;

    run.step(&format!("{BUYERS} buyers order one each, all at once")).await;
    let ended = future::join_all((0..BUYERS).map(|buyer| buy(&run.suite, buyer, &sku))).await;

    run.step("The ends of the orders").await;
    let mut confirmed = 0;
    let mut cancelled = 0;
    for purchase in ended {
        let (status, saga) = purchase?;
        let refused_at = saga.refused_at().map(|step| step.step.as_str());
        match (status.as_str(), saga.status.as_str(), refused_at) {
            ("CONFIRMED", "COMPLETED", None) => confirmed += 1,
            ("CANCELLED", "COMPENSATED", Some("reserve_stock")) => cancelled += 1,
            ended => run.claim(&format!("no order ends as {ended:?}"), false),
        }
    }
    run.claim_is("exactly 5 orders are CONFIRMED", confirmed, UNITS as usize);
    run.claim_is("45 were refused by reserve_stock and are CANCELLED", cancelled, BUYERS - UNITS as usize);
    let supplied = run.suite.product(&sku).await?.context("the product is gone")?.supplied;
    run.claim_is("no more units were supplied meanwhile", supplied, UNITS);
    run.claim_stock(&sku, 0, UNITS).await
}

/// Orders one unit, and returns the status of the ended order and its saga.
async fn buy(suite: &Suite, buyer: usize, sku: &str) -> anyhow::Result<(String, Saga)> {
    let order = NewOrder::of(&format!("buyer-{buyer}"), sku, 1, "tok_visa");
    let (placed, _) = suite.place_surely(&order, &Uuid::now_v7().to_string(), PURCHASE_TIMEOUT).await?;
    let no_end = || format!("order {} has not ended", placed.order_id);
    let saga = suite.saga_when(placed.order_id, Saga::is_terminal, PURCHASE_TIMEOUT).await?.with_context(no_end)?;
    let ended = suite.ended_order(placed.order_id, PURCHASE_TIMEOUT).await?;
    Ok((ended.with_context(no_end)?.status, saga))
}
