//! 4: many buyers, few units. Nothing is sold twice and nothing stays unsold.

use std::time::Duration;

use anyhow::Context;
use futures_util::future;
use uuid::Uuid;

use crate::{
    demo::stage::Stage,
    suite::{NewOrder, Saga, Suite, SuiteError},
};

const UNITS: i64 = 5;
const BUYERS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product of which there is little").await;
    let sku = stage.product(UNITS, 9_900).await?;

    stage.step(&format!("{BUYERS} buyers want one each, all at once")).await;
    let suite = &stage.suite;
    let sku_wanted = &sku;
    let purchases = (0..BUYERS).map(|n| async move { buy(suite, n, sku_wanted).await });
    let ended = future::join_all(purchases).await;

    stage.step("Who got one").await;
    let mut confirmed = 0;
    let mut cancelled = 0;
    for purchase in ended {
        let (status, saga) = purchase?;
        let refused_at = saga.refused_at().map(|step| step.step.as_str());
        match (status.as_str(), saga.status.as_str(), refused_at) {
            ("CONFIRMED", "COMPLETED", None) => confirmed += 1,
            ("CANCELLED", "COMPENSATED", Some("reserve_stock")) => cancelled += 1,
            ended => stage.claim(&format!("no order ends as {ended:?}"), false),
        }
    }
    stage.claim_is("exactly 5 orders are CONFIRMED", confirmed, UNITS as usize);
    stage.claim_is("45 were refused by reserve_stock and are CANCELLED", cancelled, BUYERS - UNITS as usize);
    let supplied = stage.suite.product(&sku).await?.context("the product is gone")?.supplied;
    stage.claim_is("nobody supplied more meanwhile", supplied, UNITS);
    stage.claim_stock(&sku, 0, UNITS).await
}

/// Orders one unit; how the order and its saga ended.
async fn buy(suite: &Suite, buyer: usize, sku: &str) -> anyhow::Result<(String, Saga)> {
    let order = NewOrder::of(&format!("buyer-{buyer}"), sku, 1, "tok_visa");
    let (placed, _) = suite.place_surely(&order, &Uuid::now_v7().to_string(), PATIENCE).await?;
    let no_end = || format!("order {} has not ended", placed.order_id);
    let saga = suite.ended_saga(placed.order_id, PATIENCE).await?.with_context(no_end)?;
    let ended: Result<_, SuiteError> = suite.ended_order(placed.order_id, PATIENCE).await;
    Ok((ended?.with_context(no_end)?.status, saga))
}
