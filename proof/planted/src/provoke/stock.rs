//! Provocations by concurrent orders for the last units.

use contracts::INVENTORY;
use serde_json::json;

use crate::experiment::{Experiment, GOOD};

const SCARCE: &str = "SCARCE";
const UNITS: i64 = 15;

/// Two replicas sell the last units at the same time, with delayed commits.
pub async fn sell_the_last_units_at_once(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.testbed.sell(SCARCE, 1_000, UNITS).await?;
    let slow = json!({
        "point": "before_commit", "kind": "latency", "latency_ms": 30, "scope": {"step": "reserve_stock"},
    });
    experiment.arm(INVENTORY, slow).await?;
    experiment.order(30, SCARCE, GOOD).await?;
    experiment.wait_for_all_ends().await?;
    experiment.disarm().await
}
