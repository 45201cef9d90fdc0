//! Provocations of relays: crashes between mark and publication, transactions that commit in another order.

use std::time::Duration;

use contracts::{INVENTORY, ORDER};
use serde_json::json;

use crate::experiment::Experiment;

/// Two relays crash just before they publish a committed event.
pub async fn crash_before_publishing(experiment: &mut Experiment) -> anyhow::Result<()> {
    for service in [ORDER, INVENTORY] {
        experiment.crash(service, json!({"point": "bus_publish", "kind": "crash", "first": 1})).await?;
    }
    experiment.look_for(Duration::from_secs(3)).await
}

/// Every third transaction of order is delayed between its last write and its commit; others overtake it.
pub async fn commit_out_of_order(experiment: &mut Experiment) -> anyhow::Result<()> {
    let slow = json!({"point": "before_commit", "kind": "latency", "latency_ms": 1_500, "every": 3});
    experiment.arm(ORDER, slow).await?;
    experiment.order_available(12).await?;
    experiment.disarm().await
}
