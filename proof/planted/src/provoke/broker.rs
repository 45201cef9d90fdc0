//! Provocations by a broker that loses its data, or has little room for it.

use std::time::Duration;

use async_nats::jetstream;
use contracts::{INVENTORY, SERVICES};
use testkit::eventually;

use crate::experiment::{Experiment, LIMIT};

const RELAYED: &str = "select count(*) = 0 from orders.outbox";
const NUDGED: &str = "select count(*) = 0 from saga.saga_instance where status = 'STARTED' and not stall_nudged";

/// The broker loses everything between two series of orders, and its streams begin again with sequence 1.
pub async fn begin_the_sequences_again(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.order_available(12).await?;
    experiment.wait_for_all_ends().await?;
    experiment.something_failed = true;
    wipe(experiment).await?;
    experiment.order_available(3).await
}

/// The broker loses events that inventory has not processed, and again after the stalled sagas' events were repeated. Then there
/// is still enough time.
pub async fn empty_it_twice(experiment: &mut Experiment) -> anyhow::Result<()> {
    experiment.something_failed = true;
    experiment.first(INVENTORY).program.kill().await;
    experiment.order_available(4).await?;
    experiment.wait_until("everything is published", RELAYED).await?;
    wipe(experiment).await?;
    experiment.wait_until("the stalled sagas' events are repeated", NUDGED).await?;
    experiment.wait_until("everything is published again", RELAYED).await?;
    wipe(experiment).await?;
    experiment.first(INVENTORY).program.start().await
}

/// Inventory is down until a stream is three quarters full of events that it has not processed, and until the stalled sagas'
/// events were repeated. Each time the topology reconciler, which checks once a second, has run before inventory is started
/// again.
pub async fn fill_most_of_a_stream(experiment: &mut Experiment) -> anyhow::Result<()> {
    /// The relay, too, may wait for free space once or twice.
    const RECONCILER_HAS_RUN: Duration = Duration::from_secs(6);
    experiment.something_failed = true;
    let inventory = experiment.first(INVENTORY);
    inventory.program.kill().await;
    experiment.order_available(70).await?;
    experiment.wait_until("everything is published", RELAYED).await?;
    experiment.wait_until("the stalled sagas' events are repeated", NUDGED).await?;
    tokio::time::sleep(RECONCILER_HAS_RUN).await;
    inventory.program.start().await?;
    experiment.testbed.ready_one(&inventory, LIMIT).await
}

/// Returns when the topology reconciler has restored the streams.
async fn wipe(experiment: &Experiment) -> anyhow::Result<()> {
    experiment.testbed.nats.lock().await.wipe().await?;
    let broker = jetstream::new(experiment.testbed.broker().await?);
    for service in SERVICES {
        eventually(LIMIT, async || broker.get_stream(service.stream()).await.map(drop)).await?;
    }
    Ok(())
}
