//! 2: the customer cancels, once after the order was confirmed and once while it is pending.

use crate::{demo::scenario_run::ScenarioRun, suite::NewOrder};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10, 2_500).await?;
    let order = NewOrder::of("bob", &sku, 3, "tok_visa");

    run.step("Bob orders three, and the order is confirmed").await;
    let placed = run.place(&order).await?;
    let confirmed = run.ended(placed.order_id).await?;
    run.claim_is("the order is CONFIRMED", confirmed.order.status.as_str(), "CONFIRMED");
    run.claim_stock(&sku, 7, 3).await?;

    run.step("Bob cancels it").await;
    run.cancel(placed.order_id, "found it cheaper").await?;
    let cancelled = run.claim_undone(placed.order_id).await?;
    run.claim_is("the payment is REFUNDED", cancelled.payment.map(|p| p.status), Some("REFUNDED".to_owned()));
    run.claim_stock(&sku, 10, 0).await?;

    run.step("His app repeats the cancellation").await;
    run.cancel(placed.order_id, "found it cheaper").await?;
    run.claim_order("the order stays CANCELLED", placed.order_id, "CANCELLED").await?;
    run.claim_stock(&sku, 10, 0).await?;

    run.step("Another order is cancelled at once, in the middle of its saga").await;
    let placed = run.place(&order).await?;
    run.cancel(placed.order_id, "ordered by mistake").await?;
    let cancelled = run.claim_undone(placed.order_id).await?;
    let payment = cancelled.payment.map(|p| p.status);
    let claim = format!("the payment was refunded or never made: {}", payment.as_deref().unwrap_or("none"));
    run.claim(&claim, matches!(payment.as_deref(), Some("REFUNDED" | "VOIDED")));
    run.claim_stock(&sku, 10, 0).await
}
