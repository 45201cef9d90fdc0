//! Provocations of the saga: overtaking, late success, participants that are away.

use std::time::Duration;

use contracts::{INVENTORY, ORDER};
use serde_json::json;

use crate::scene::{GOOD, LIMIT, PLENTY, SLOW, Scene};

/// The cards answer after the deadline has been noticed. A detector that writes later than it reads must have had its time.
pub async fn succeed_after_the_deadline(scene: &mut Scene) -> anyhow::Result<()> {
    scene.order(6, PLENTY, SLOW).await?;
    let long_past = "select coalesce(max(deadline) < now() - interval '4 seconds', false) from saga.saga_instance";
    scene.wait_until("all deadlines are long past", long_past).await
}

/// The orders are held up on their way to inventory, and their cancellations overtake them.
pub async fn cancel_before_the_step(scene: &mut Scene) -> anyhow::Result<()> {
    let held = json!({"point": "before_inbox_claim", "kind": "hang", "scope": {"step": "reserve_stock"}});
    scene.arm(INVENTORY, held).await?;
    for order in scene.order(4, PLENTY, GOOD).await? {
        scene.cancel(order).await?;
    }
    scene.wait_for_all_ends().await?;
    scene.disarm().await
}

/// Confirmed orders are cancelled while inventory cannot give anything back.
pub async fn cancel_while_a_participant_is_away(scene: &mut Scene) -> anyhow::Result<()> {
    let orders = scene.order(4, PLENTY, GOOD).await?;
    scene.wait_for_all_ends().await?;
    let inventory = scene.first(INVENTORY);
    inventory.program.kill().await;
    scene.something_failed = true;
    for order in orders {
        scene.cancel(order).await?;
    }
    let refunded = "select count(*) = 0 from payment.payment where status = 'CAPTURED'";
    scene.wait_until("payment has given everything back", refunded).await?;
    scene.look_for(Duration::from_secs(1)).await?;
    inventory.program.start().await?;
    scene.stage.ready_one(&inventory, LIMIT).await
}

/// Confirmed orders are cancelled while order's relay is paused, for longer than all attempts of a compensation take.
pub async fn cancel_while_the_relay_is_paused(scene: &mut Scene) -> anyhow::Result<()> {
    let orders = scene.order(4, PLENTY, GOOD).await?;
    scene.wait_for_all_ends().await?;
    scene.stage.suite().pause_relay(ORDER).await?;
    for order in orders {
        scene.cancel(order).await?;
    }
    // Each attempt has twice the time of the one before: 63 tenths of a second for the first and five more.
    scene.look_for(Duration::from_secs(12)).await?;
    Ok(scene.stage.suite().resume_relay(ORDER).await?)
}
