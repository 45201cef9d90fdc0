//! 12: the card is charged, but order hears of it only after the saga's deadline. The order stays cancelled, and the
//! money goes back.

use anyhow::Context;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{NewOrder, ORDER, Saga},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and a deadline of four seconds instead of sixty").await;
    let sku = stage.product(10, 7_700).await?;
    stage.restart_with("order", &[("SAGA_DEADLINE", "4s")]).await?;

    stage.step("Order stops to listen for payments, and Grace orders one").await;
    stage.pause_consumer(ORDER, "confirm_order").await?;
    let placed = stage.place(&NewOrder::of("grace", &sku, 1, "tok_visa")).await?;
    let captured =
        async || Ok(stage.suite.payment_of(placed.order_id).await?.filter(|payment| payment.status == "CAPTURED"));
    let payment = stage.claim_soon("her card is charged", PATIENCE, captured).await?;

    stage.step("The deadline passes").await;
    let ended = stage.undone(placed.order_id, PATIENCE).await?;
    stage.claim_undone(&ended).await?;
    let payment = stage.suite.payment_of(payment.order_id).await?.context("the payment is gone")?;
    stage.claim_is("the payment is REFUNDED", payment.status.as_str(), "REFUNDED");
    stage.claim_stock(&sku, 10, 0).await?;

    stage.step("Now order hears that the card was charged").await;
    stage.resume_consumer(ORDER, "confirm_order").await?;
    let skipped = |saga: &Saga| saga.steps.iter().any(|s| s.step == "confirm_order" && s.status == "SKIPPED");
    let late = async || Ok(stage.suite.saga(placed.saga_id).await?.filter(skipped));
    let saga = stage.claim_soon("the late success is journalled as SKIPPED", PATIENCE, late).await?;
    stage.claim_is("the saga stays COMPENSATED", saga.status.as_str(), "COMPENSATED");
    let order = stage.suite.order(placed.order_id).await?.context("the order is gone")?;
    stage.claim_is("the order stays CANCELLED", order.status.as_str(), "CANCELLED");
    stage.restart("order").await
}
