//! Provocations of consumers: crashes before the commit, repeats, lost acknowledgements.

use std::time::Duration;

use contracts::{INVENTORY, PAYMENT, SERVICES};
use serde_json::json;

use crate::scene::{DECLINED, PLENTY, Scene};

/// Inventory and then payment crash when everything is written and nothing is committed. What they had in hand must come
/// again.
pub async fn crash_before_commit(scene: &mut Scene) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "reserve_stock"), (PAYMENT, "process_payment")] {
        let crash = json!({"point": "before_commit", "kind": "crash", "first": 1, "scope": {"step": step}});
        scene.crash(service, crash).await?;
    }
    scene.look_for(Duration::from_secs(3)).await
}

/// Every event is in its stream three times, under three message ids, while some orders are declined and undone.
pub async fn publish_in_triplicate(scene: &mut Scene) -> anyhow::Result<()> {
    for service in SERVICES {
        scene.arm(service, json!({"point": "bus_publish", "kind": "duplicate", "copies": 2})).await?;
    }
    scene.order_what_can_be_had(3).await?;
    scene.order(5, PLENTY, DECLINED).await?;
    scene.wait_for_all_ends().await?;
    scene.disarm().await
}

/// The acknowledgements of compensations get lost, so that they are delivered again.
pub async fn lose_acknowledgements(scene: &mut Scene) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "release_stock"), (PAYMENT, "refund_payment")] {
        let lost = json!({"point": "after_commit_before_ack", "kind": "drop", "first": 5, "scope": {"step": step}});
        scene.arm(service, lost).await?;
    }
    scene.order_what_can_be_had(2).await?;
    scene.order(5, PLENTY, DECLINED).await?;
    // The audit waits for the redelivery only of what was published before it began.
    scene.wait_for_all_ends().await
}
