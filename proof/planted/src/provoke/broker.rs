//! Provocations by a broker that loses its data, or has little room for it.

use std::time::Duration;

use async_nats::jetstream;
use contracts::{INVENTORY, SERVICES};
use testkit::eventually;

use crate::scene::{LIMIT, Scene};

const RELAYED: &str = "select count(*) = 0 from orders.outbox";
const NUDGED: &str = "select count(*) = 0 from saga.saga_instance where status = 'STARTED' and not stall_nudged";

/// The broker loses everything between two series of orders, and its streams begin again with sequence 1.
pub async fn begin_the_sequences_again(scene: &mut Scene) -> anyhow::Result<()> {
    scene.order_what_can_be_had(12).await?;
    scene.wait_for_all_ends().await?;
    scene.something_failed = true;
    wipe(scene).await?;
    scene.order_what_can_be_had(3).await?;
    Ok(())
}

/// The broker loses what inventory has not had yet, and once more when the stalled sagas' events were repeated. Then
/// there is still time enough.
pub async fn empty_it_twice(scene: &mut Scene) -> anyhow::Result<()> {
    scene.something_failed = true;
    scene.first(INVENTORY).program.kill().await;
    scene.order_what_can_be_had(4).await?;
    scene.wait_until("everything is published", RELAYED).await?;
    wipe(scene).await?;
    scene.wait_until("the stalled sagas' events are repeated", NUDGED).await?;
    scene.wait_until("everything is published again", RELAYED).await?;
    wipe(scene).await?;
    scene.first(INVENTORY).program.start().await
}

/// Inventory is away until a stream is three quarters full of what it has not had, and until the stalled sagas' events were
/// repeated. Each time the keeper, which looks once a second, has looked before inventory returns.
pub async fn fill_most_of_a_stream(scene: &mut Scene) -> anyhow::Result<()> {
    /// The relay, too, may have to wait for room once or twice.
    const KEEPER_HAS_LOOKED: Duration = Duration::from_secs(6);
    scene.something_failed = true;
    let inventory = scene.first(INVENTORY);
    inventory.program.kill().await;
    scene.order_what_can_be_had(70).await?;
    scene.wait_until("everything is published", RELAYED).await?;
    scene.wait_until("the stalled sagas' events are repeated", NUDGED).await?;
    tokio::time::sleep(KEEPER_HAS_LOOKED).await;
    inventory.program.start().await?;
    scene.stage.ready_one(&inventory, LIMIT).await
}

/// Returns when the keeper has put the streams back.
async fn wipe(scene: &Scene) -> anyhow::Result<()> {
    scene.stage.nats.lock().await.wipe().await?;
    let broker = jetstream::new(scene.stage.broker().await?);
    for service in SERVICES {
        eventually(LIMIT, async || broker.get_stream(service.stream()).await.map(drop)).await?;
    }
    Ok(())
}
