//! Provocations by a broker that loses its data.

use async_nats::jetstream;
use contracts::{INVENTORY, SERVICES};
use testkit::eventually;

use crate::scene::{LIMIT, Scene};

const RELAYED: &str = "select count(*) = 0 from orders.outbox";

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
    let nudged = "select count(*) = 0 from saga.saga_instance where status = 'STARTED' and not stall_nudged";
    scene.wait_until("the stalled sagas' events are repeated", nudged).await?;
    scene.wait_until("everything is published again", RELAYED).await?;
    wipe(scene).await?;
    scene.first(INVENTORY).program.start().await
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
