//! 13: order crashes, as by kill -9, in each failure window of its outbox: before the commit, between commit and publication, and
//! between publication and its record. The client repeats its request under the same key, and has one order each time.

use anyhow::Context;
use uuid::Uuid;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{FaultSpec, NewOrder, ORDER, Scope},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 50, 2_100).await?;

    run.step("Order crashes before the commit: nothing was written, only the answer is lost").await;
    let oscar = NewOrder::of("oscar", &sku, 1, "tok_visa");
    let key = crash_while_ordering(run, "before_commit", &oscar).await?;
    run.claim_is("order has no order of Oscar", orders_of(run, &oscar).await?, 0);
    ordered_once(run, &oscar, &key).await?;

    run.step("Order crashes after the commit: the order exists, and its event is not published").await;
    let peggy = NewOrder::of("peggy", &sku, 1, "tok_visa");
    let key = crash_while_ordering(run, "after_commit_before_publish", &peggy).await?;
    run.claim_is("order has Peggy's order", orders_of(run, &peggy).await?, 1);
    ordered_once(run, &peggy, &key).await?;

    run.step("Order crashes after the publication: the event is published, and not marked as such").await;
    let rupert = NewOrder::of("rupert", &sku, 1, "tok_visa");
    arm_crash(run, "after_publish_before_mark", &sku).await?;
    let key = Uuid::now_v7().to_string();
    // The crash may come before or after the answer.
    let _ = run.suite.place(&rupert, &key, None).await;
    let crashed = run.crashed(ORDER).await?;
    let reserved = async || Ok(run.suite.product(&sku).await?.filter(|product| product.reserved == 3));
    run.claim_soon("inventory reserves while order is down", reserved).await?;
    run.start(&crashed).await?;
    ordered_once(run, &rupert, &key).await?;

    run.step("Three crashes, three orders").await;
    run.claim_stock(&sku, 47, 3).await
}

/// Crashes order while it accepts an order, restarts it, and returns the key of the request.
async fn crash_while_ordering(run: &mut ScenarioRun, point: &str, order: &NewOrder) -> anyhow::Result<String> {
    let sku = order.lines.first().map(|line| line.sku.clone()).context("an order without lines")?;
    arm_crash(run, point, &sku).await?;
    let key = Uuid::now_v7().to_string();
    let answer = run.suite.place(order, &key, None).await;
    run.claim("the client gets no answer", answer.is_err());
    let crashed = run.crashed(ORDER).await?;
    run.start(&crashed).await?;
    Ok(key)
}

async fn arm_crash(run: &mut ScenarioRun, point: &str, sku: &str) -> anyhow::Result<()> {
    let scope = Some(Scope { sku: Some(sku.to_owned()), ..Scope::default() });
    run.arm(ORDER, FaultSpec { first: Some(1), scope, ..FaultSpec::new(point, "crash") }).await.map(drop)
}

/// Repeats the client's request, and claims that the customer has one order, which is fulfilled.
async fn ordered_once(run: &mut ScenarioRun, order: &NewOrder, key: &str) -> anyhow::Result<()> {
    let placed = run.place_as(order, key).await?;
    run.claim_confirmed(placed.order_id).await?;
    let count = orders_of(run, order).await?;
    run.claim_is("and it is the customer's only one", count, 1);
    Ok(())
}

async fn orders_of(run: &ScenarioRun, order: &NewOrder) -> anyhow::Result<usize> {
    let orders = run.suite.orders_of(&order.customer_id).await?;
    Ok(orders.iter().filter(|known| known.lines == order.lines).count())
}
