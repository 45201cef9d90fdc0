//! Provocations of stock that is wanted by many at once.

use contracts::INVENTORY;
use serde_json::json;

use crate::scene::{GOOD, Scene};

const SCARCE: &str = "SCARCE";
const UNITS: i64 = 15;

/// Two replicas sell the last units at the same time, and each transaction takes a moment to commit.
pub async fn sell_the_last_units_at_once(scene: &mut Scene) -> anyhow::Result<()> {
    scene.stage.sell(SCARCE, 1_000, UNITS).await?;
    let slow = json!({
        "point": "before_commit", "kind": "latency", "latency_ms": 30, "scope": {"step": "reserve_stock"},
    });
    scene.arm(INVENTORY, slow).await?;
    scene.order(30, SCARCE, GOOD).await?;
    scene.wait_for_all_ends().await?;
    scene.disarm().await
}
