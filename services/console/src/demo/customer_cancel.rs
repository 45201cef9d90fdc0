//! 2: the customer changes their mind, once after the order was confirmed and once while it is pending.

use super::stage::Stage;
use crate::suite::NewOrder;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product");
    let sku = stage.product(10, 2_500).await?;
    let order = NewOrder::of("bob", &sku, 3, "tok_visa");

    stage.step("Bob orders three, and the order is confirmed");
    let placed = stage.place(&order).await?;
    let confirmed = stage.ended(placed.order_id).await?;
    stage.claim_is("the order is CONFIRMED", confirmed.order.status.as_str(), "CONFIRMED");
    stage.claim_stock(&sku, 7, 3).await?;

    stage.step("Then he changes his mind");
    stage.suite.cancel(placed.order_id, "found it cheaper").await?;
    let cancelled = compensated(stage, placed.order_id).await?;
    stage.claim_undone(&cancelled).await?;
    stage.claim_is("the payment is REFUNDED", cancelled.payment.map(|p| p.status), Some("REFUNDED".to_owned()));
    stage.claim_stock(&sku, 10, 0).await?;

    stage.step("He cancels again, because his app repeats itself");
    stage.suite.cancel(placed.order_id, "found it cheaper").await?;
    let unchanged = stage.suite.order(placed.order_id).await?;
    stage.claim_is("the order stays CANCELLED", unchanged.map(|o| o.status), Some("CANCELLED".to_owned()));
    stage.claim_stock(&sku, 10, 0).await?;

    stage.step("Another order is cancelled at once, in the middle of its saga");
    let placed = stage.place(&order).await?;
    stage.suite.cancel(placed.order_id, "ordered by mistake").await?;
    let cancelled = compensated(stage, placed.order_id).await?;
    stage.claim_undone(&cancelled).await?;
    let payment = cancelled.payment.map(|p| p.status);
    stage.claim(
        &format!("the payment was taken back or never made: {}", payment.as_deref().unwrap_or("none")),
        matches!(payment.as_deref(), Some("REFUNDED" | "VOIDED")),
    );
    stage.claim_stock(&sku, 10, 0).await
}

/// A cancelled order's saga may have been COMPLETED before; it has ended only when it is compensated.
async fn compensated(stage: &mut Stage, order_id: uuid::Uuid) -> anyhow::Result<super::stage::Ended> {
    let limit = std::time::Duration::from_secs(20);
    crate::suite::until(limit, async || {
        Ok(stage.suite.saga_of(order_id).await?.filter(|saga| matches!(saga.status.as_str(), "COMPENSATED" | "FAILED")))
    })
    .await?;
    stage.ended(order_id).await
}
