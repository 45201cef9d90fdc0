//! 2: the customer changes their mind, once after the order was confirmed and once while it is pending.

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::NewOrder,
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10, 2_500).await?;
    let order = NewOrder::of("bob", &sku, 3, "tok_visa");

    stage.step("Bob orders three, and the order is confirmed").await;
    let placed = stage.place(&order).await?;
    let confirmed = stage.ended(placed.order_id).await?;
    stage.claim_is("the order is CONFIRMED", confirmed.order.status.as_str(), "CONFIRMED");
    stage.claim_stock(&sku, 7, 3).await?;

    stage.step("Then he changes his mind").await;
    stage.cancel(placed.order_id, "found it cheaper").await?;
    let cancelled = stage.undone(placed.order_id, PATIENCE).await?;
    stage.claim_undone(&cancelled).await?;
    stage.claim_is("the payment is REFUNDED", cancelled.payment.map(|p| p.status), Some("REFUNDED".to_owned()));
    stage.claim_stock(&sku, 10, 0).await?;

    stage.step("He cancels again, because his app repeats itself").await;
    stage.cancel(placed.order_id, "found it cheaper").await?;
    let unchanged = stage.suite.order(placed.order_id).await?;
    stage.claim_is("the order stays CANCELLED", unchanged.map(|o| o.status), Some("CANCELLED".to_owned()));
    stage.claim_stock(&sku, 10, 0).await?;

    stage.step("Another order is cancelled at once, in the middle of its saga").await;
    let placed = stage.place(&order).await?;
    stage.cancel(placed.order_id, "ordered by mistake").await?;
    let cancelled = stage.undone(placed.order_id, PATIENCE).await?;
    stage.claim_undone(&cancelled).await?;
    let payment = cancelled.payment.map(|p| p.status);
    stage.claim(
        &format!("the payment was taken back or never made: {}", payment.as_deref().unwrap_or("none")),
        matches!(payment.as_deref(), Some("REFUNDED" | "VOIDED")),
    );
    stage.claim_stock(&sku, 10, 0).await
}
