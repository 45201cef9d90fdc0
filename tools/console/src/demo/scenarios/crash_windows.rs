//! 13: order crashes, as by kill -9, in each window of its outbox: before the commit, between the commit and the
//! publication, and between the publication and its record. The client repeats its request under the same key, and has
//! one order each time.

use std::time::Duration;

use anyhow::Context;
use uuid::Uuid;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{FaultSpec, NewOrder, ORDER, Scope},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(50, 2_100).await?;

    stage.step("Order crashes before the commit: nothing was written, and nothing is lost but the answer").await;
    let oscar = NewOrder::of("oscar", &sku, 1, "tok_visa");
    let key = crash_while_ordering(stage, "before_commit", &oscar).await?;
    stage.claim_is("order has no order of Oscar's", orders_of(stage, &oscar).await?, 0);
    ordered_once(stage, &oscar, &key).await?;

    stage.step("Order crashes after the commit: the order is there, and nobody has been told").await;
    let peggy = NewOrder::of("peggy", &sku, 1, "tok_visa");
    let key = crash_while_ordering(stage, "after_commit_before_publish", &peggy).await?;
    stage.claim_is("order has Peggy's order", orders_of(stage, &peggy).await?, 1);
    ordered_once(stage, &peggy, &key).await?;

    stage.step("Order crashes after the publication: everybody has been told, and order does not know it").await;
    let rupert = NewOrder::of("rupert", &sku, 1, "tok_visa");
    arm_crash(stage, "after_publish_before_mark", &sku).await?;
    let key = Uuid::now_v7().to_string();
    // The answer may still come, or not any more.
    let _ = stage.suite.place(&rupert, &key, None).await;
    let crashed = stage.crashed(ORDER).await?;
    let reserved = async || Ok(stage.suite.product(&sku).await?.filter(|product| product.reserved == 3));
    stage.claim_soon("inventory reserves while order is away", PATIENCE, reserved).await?;
    stage.start(&crashed).await?;
    ordered_once(stage, &rupert, &key).await?;

    stage.step("Three crashes, three orders").await;
    stage.claim_stock(&sku, 47, 3).await
}

/// Lets order crash while it takes an order, and starts it again; the key of the request.
async fn crash_while_ordering(stage: &mut Stage, point: &str, order: &NewOrder) -> anyhow::Result<String> {
    let sku = order.lines.first().map(|line| line.sku.clone()).context("an order without lines")?;
    arm_crash(stage, point, &sku).await?;
    let key = Uuid::now_v7().to_string();
    let answer = stage.suite.place(order, &key, None).await;
    stage.claim("the client gets no answer", answer.is_err());
    let crashed = stage.crashed(ORDER).await?;
    stage.start(&crashed).await?;
    Ok(key)
}

async fn arm_crash(stage: &mut Stage, point: &str, sku: &str) -> anyhow::Result<()> {
    let scope = Scope { sku: Some(sku.to_owned()), ..Scope::default() };
    stage.arm(ORDER, FaultSpec::new(point, "crash").first(1).scope(scope)).await.map(drop)
}

/// The client repeats its request, and claims that it has one order, which is fulfilled once.
async fn ordered_once(stage: &mut Stage, order: &NewOrder, key: &str) -> anyhow::Result<()> {
    let placed = stage.place_as(order, key).await?;
    let ended = stage.ended_within(placed.order_id, Duration::from_secs(20)).await?;
    stage.claim_confirmed(&ended).await?;
    let count = orders_of(stage, order).await?;
    stage.claim_is("and it is the customer's only one", count, 1);
    Ok(())
}

/// How many orders of this product the customer has.
async fn orders_of(stage: &Stage, order: &NewOrder) -> anyhow::Result<usize> {
    let orders = stage.suite.orders_of(&order.customer_id).await?;
    Ok(orders.iter().filter(|known| known.lines == order.lines).count())
}
