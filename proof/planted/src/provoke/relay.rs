//! Provocations of relays: crashes between mark and publication, transactions that commit in another order.

use std::time::Duration;

use contracts::{INVENTORY, ORDER};
use serde_json::json;

use crate::scene::Scene;

/// Two relays crash when they are about to publish an event that is committed.
pub async fn crash_before_publishing(scene: &mut Scene) -> anyhow::Result<()> {
    for service in [ORDER, INVENTORY] {
        scene.crash(service, json!({"point": "bus_publish", "kind": "crash", "first": 1})).await?;
    }
    scene.look_for(Duration::from_secs(3)).await
}

/// Every third transaction of order takes its time between its last write and its commit; others overtake it.
pub async fn commit_out_of_order(scene: &mut Scene) -> anyhow::Result<()> {
    let slow = json!({"point": "before_commit", "kind": "latency", "latency_ms": 1_500, "every": 3});
    scene.arm(ORDER, slow).await?;
    scene.order_what_can_be_had(12).await?;
    scene.disarm().await
}
