//! 6: payment is away until the saga's deadline. The saga compensates as far as it can, and finishes
//! when payment is back, which then finds the cancellation and charges nobody.

use std::time::Duration;

use anyhow::Context;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{NewOrder, Order},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and a deadline of ten seconds instead of sixty").await;
    let sku = stage.product(10, 3_000).await?;
    stage.restart_with("order", &[("SAGA_DEADLINE", "10s")]).await?;

    stage.step("The payment service is stopped").await;
    stage.stop("payment").await?;

    stage.step("Erin orders two all the same; nobody answers for payment, so the saga waits for its deadline").await;
    let placed = stage.place(&NewOrder::of("erin", &sku, 2, "tok_visa")).await?;
    let ended = stage.suite.ended_order(placed.order_id, Duration::from_secs(8)).await?;
    stage.claim("after eight seconds it still waits", ended.is_none());
    let cancelled = async || Ok(stage.suite.order(placed.order_id).await?.filter(Order::is_terminal));
    let order = stage.claim_soon("then the deadline passes, and the order is ended", PATIENCE, cancelled).await?;
    stage.claim_is("it is CANCELLED", order.status.as_str(), "CANCELLED");
    stage.note(order.cancel_reason.as_deref().unwrap_or_default());
    let released =
        async || Ok(stage.suite.reservation(placed.order_id).await?.filter(|held| held.status == "RELEASED"));
    stage.claim_soon("inventory has released the stock at once", PATIENCE, released).await?;
    stage.claim_stock(&sku, 10, 0).await?;
    let saga = stage.suite.saga(placed.saga_id).await?.context("the saga is gone")?;
    stage.claim_is(
        "the saga is COMPENSATING: payment has not confirmed its undo",
        saga.status.as_str(),
        "COMPENSATING",
    );
    stage.claim_is("and nobody else is missing", saga.receipts_due, ["payment"]);

    stage.step("The payment service comes back, with both the old reservation and its cancellation to read").await;
    stage.start("payment").await?;
    let ended = stage.undone(placed.order_id, PATIENCE).await?;
    stage.claim_undone(&ended).await?;
    let payment = ended.payment.as_ref();
    stage.claim_is("the payment is VOIDED", payment.map(|p| p.status.as_str()), Some("VOIDED"));
    if let Some(payment) = payment {
        let charge = stage.suite.charge(payment.payment_id).await?;
        stage.claim_is("nothing was charged, not even for a moment", charge, None);
    }
    stage.restart("order").await
}
