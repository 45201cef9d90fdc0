//! 6: payment is away until the saga's deadline. The saga compensates as far as it can, and finishes
//! when payment is back, which then finds the cancellation and charges nobody.

use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use uuid::Uuid;

use super::stage::Stage;
use crate::suite::{NewOrder, Order, Saga};

/// What the timeout detector and the cancellation may take after the deadline.
const SLACK: Duration = Duration::from_secs(30);

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product");
    let sku = stage.product(10, 3_000).await?;

    stage.step("The payment service is stopped");
    stage.services.stop("payment").await?;

    stage.step("Erin orders two all the same");
    let placed = stage.place(&NewOrder::of("erin", &sku, 2, "tok_visa")).await?;
    let saga = stage.suite.saga_of(placed.order_id).await?.context("the order has no saga")?;

    stage.step("Nobody answers for payment, so the saga waits for its deadline");
    let order = wait_for_the_timeout(stage, placed.order_id, &saga).await?;
    stage.claim_is("then the order is CANCELLED", order.status.as_str(), "CANCELLED");
    if let Some(reason) = &order.cancel_reason {
        stage.note(reason);
    }
    let released = crate::suite::until(SLACK, async || {
        let reservation = stage.suite.reservation(placed.order_id).await?;
        Ok(reservation.filter(|r| r.status == "RELEASED"))
    })
    .await?;
    stage.claim("inventory has released the stock at once", released.is_some());
    stage.claim_stock(&sku, 10, 0).await?;
    let saga = stage.suite.saga(saga.saga_id).await?.context("the saga is gone")?;
    stage.claim_is(
        "the saga is COMPENSATING: payment has not confirmed its undo",
        saga.status.as_str(),
        "COMPENSATING",
    );
    stage.claim_is("and nobody else is missing", saga.receipts_due, ["payment"]);

    stage.step("The payment service comes back, with both the old reservation and its cancellation to read");
    stage.services.start("payment").await?;
    let ended = stage.ended_within(placed.order_id, Duration::from_secs(60)).await?;
    stage.claim_undone(&ended).await?;
    let payment = ended.payment.as_ref();
    stage.claim_is("the payment is VOIDED", payment.map(|p| p.status.as_str()), Some("VOIDED"));
    if let Some(payment) = payment {
        let charge = stage.suite.charge(payment.payment_id).await?;
        stage.claim_is("nothing was charged, not even for a moment", charge, None);
    }
    Ok(())
}

/// Tells every few seconds how long it may still take.
async fn wait_for_the_timeout(stage: &Stage, order_id: Uuid, saga: &Saga) -> anyhow::Result<Order> {
    const EVERY: Duration = Duration::from_secs(5);
    let to_deadline = Duration::try_from(saga.deadline - saga.started_at).unwrap_or_default();
    stage.note(&format!("the deadline is {} after the start", humantime::format_duration(to_deadline)));
    let began = Instant::now();
    while began.elapsed() < to_deadline + SLACK {
        if let Some(order) = stage.suite.ended_order(order_id, EVERY).await? {
            return Ok(order);
        }
        let left = to_deadline.saturating_sub(began.elapsed()).as_secs();
        let waits_for = if left > 0 { format!("deadline in {left} s") } else { "deadline is over".to_owned() };
        stage.note(&format!("still PENDING, {waits_for}"));
    }
    stage.suite.order(order_id).await?.context("the order is gone")
}
