//! Provocations by what the card processor answers, and by what payment has forgotten of it.

use anyhow::{Context, ensure};
use contracts::{OrderId, PAYMENT, PaymentId};
use serde_json::json;
use testkit::eventually;

use crate::scene::{DECLINED, GOOD, LIMIT, PLENTY, Scene};

/// Fifteen cards in a row are declined, as they may be on a bad day; then some good ones come.
pub async fn decline_everything(scene: &mut Scene) -> anyhow::Result<()> {
    for _ in 0..3 {
        scene.order(5, PLENTY, DECLINED).await?;
    }
    scene.wait_for_all_ends().await?;
    scene.order_what_can_be_had(3).await?;
    Ok(())
}

/// Fifteen charges in a row are rejected for good (422), because their keys have been used for other charges; then some
/// good ones come.
pub async fn reject_charges_for_good(scene: &mut Scene) -> anyhow::Result<()> {
    scene.stage.suite().pause_consumer(PAYMENT, "process_payment").await?;
    for order in scene.order(15, PLENTY, GOOD).await? {
        let key = PaymentId::of(OrderId(order)).to_string();
        let other = json!({"amount": 1, "currency": "USD", "token": DECLINED});
        let refused = scene.stage.suite().charge_card(&key, &other).await.err().context("the other charge is made")?;
        ensure!(refused.status().is_some_and(|status| status == 402), "the other charge: {refused}");
    }
    scene.stage.suite().resume_consumer(PAYMENT, "process_payment").await?;
    scene.wait_for_all_ends().await?;
    scene.order_what_can_be_had(3).await?;
    Ok(())
}

/// Payment crashes when the card processor has charged. While it is down the database is set back to before the intents,
/// and the orders are cancelled.
pub async fn forget_charges(scene: &mut Scene) -> anyhow::Result<()> {
    scene.something_failed = true;
    scene.arm(PAYMENT, json!({"point": "after_charge_before_record", "kind": "crash", "first": 1})).await?;
    let orders = scene.order(3, PLENTY, GOOD).await?;
    let payment = scene.first(PAYMENT);
    eventually(LIMIT, async || !payment.program.is_running().await).await?;
    sqlx::query("delete from payment.payment").execute(&scene.stage.pool).await?;
    for order in orders {
        scene.cancel(order).await?;
    }
    payment.program.start().await?;
    scene.stage.ready_one(&payment, LIMIT).await
}
