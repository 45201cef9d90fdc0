//! 6: payment is down until the saga's deadline. The saga compensates what it can, and ends when payment is back, which then
//! processes the cancellation and charges no card.

use std::time::Duration;

use anyhow::Context;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{NewOrder, Order},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and a deadline of ten seconds instead of sixty", 10, 3_000).await?;
    run.restart_with("order", &[("SAGA_DEADLINE", "10s")]).await?;

    run.step("The payment service is stopped").await;
    run.stop("payment").await?;

    run.step("Erin orders two; payment does not answer, so the saga waits for its deadline").await;
    let placed = run.place(&NewOrder::of("erin", &sku, 2, "tok_visa")).await?;
    let ended = run.suite.ended_order(placed.order_id, Duration::from_secs(8)).await?;
    run.claim("after eight seconds it still waits", ended.is_none());
    let cancelled = async || Ok(run.suite.order(placed.order_id).await?.filter(Order::is_terminal));
    let order = run.claim_soon("the deadline passes, and the order ends", cancelled).await?;
    run.claim_is("it is CANCELLED", order.status.as_str(), "CANCELLED");
    run.note(order.cancel_reason.as_deref().unwrap_or_default());
    let released = async || Ok(run.suite.reservation(placed.order_id).await?.filter(|held| held.status == "RELEASED"));
    run.claim_soon("inventory has released the stock at once", released).await?;
    run.claim_stock(&sku, 10, 0).await?;
    let saga = run.suite.saga(placed.saga_id).await?.context("the saga is gone")?;
    run.claim_is("the saga is COMPENSATING: payment has not confirmed its undo", saga.status.as_str(), "COMPENSATING");
    run.claim_is("and it is the only one", saga.receipts_due, ["payment"]);

    run.step("The payment service comes back, with the old reservation and its cancellation to process").await;
    run.start("payment").await?;
    let ended = run.claim_undone(placed.order_id).await?;
    let payment = ended.payment.as_ref();
    run.claim_is("the payment is VOIDED", payment.map(|p| p.status.as_str()), Some("VOIDED"));
    if let Some(payment) = payment {
        let charge = run.suite.charge(payment.payment_id).await?;
        run.claim_is("nothing was charged at any time", charge, None);
    }
    run.restart("order").await
}
