//! 12: the card is charged, but order receives the event only after the saga's deadline. The order stays cancelled, and the
//! payment is refunded.

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{NewOrder, ORDER, Saga},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku =
        run.step_with_product("A new product, and a deadline of four seconds instead of sixty", 10, 7_700).await?;
    run.restart_with("order", &[("SAGA_DEADLINE", "4s")]).await?;

    run.step("Order stops consuming payments, and Grace orders one").await;
    run.pause_consumer(ORDER, "confirm_order").await?;
    let placed = run.place(&NewOrder::of("grace", &sku, 1, "tok_visa")).await?;
    let captured =
        async || Ok(run.suite.payment_of(placed.order_id).await?.filter(|payment| payment.status == "CAPTURED"));
    run.claim_soon("her card is charged", captured).await?;

    run.step("The deadline passes").await;
    run.claim_undone(placed.order_id).await?;
    run.claim_payment("the payment is REFUNDED", placed.order_id, "REFUNDED").await?;
    run.claim_stock(&sku, 10, 0).await?;

    run.step("Order receives the late payment").await;
    run.resume_consumer(ORDER, "confirm_order").await?;
    let skipped = |saga: &Saga| saga.steps.iter().any(|s| s.step == "confirm_order" && s.status == "SKIPPED");
    let saga = run.claim_saga("the late success is journalled as SKIPPED", placed.saga_id, skipped).await?;
    run.claim_is("the saga stays COMPENSATED", saga.status.as_str(), "COMPENSATED");
    run.claim_order("the order stays CANCELLED", placed.order_id, "CANCELLED").await?;
    run.restart("order").await
}
