//! 9: the broker loses its disk while orders are under way. The receipts in the outboxes tell what it must have had,
//! and what is still needed is published again.

use std::time::Duration;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::{INVENTORY, NewOrder, OutboxEntry, PAYMENT},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and payment stops to charge").await;
    let sku = stage.product(1_000, 1_500).await?;
    stage.pause_consumer(PAYMENT, "process_payment").await?;

    stage
        .step("40 orders come as far as payment: what they wait for is in the broker and nowhere else on its way")
        .await;
    let mut placed = stage.place_all(&sku, 40, "tok_visa").await?;
    let published = async || {
        let events = stage.events_of(INVENTORY, &placed).await?;
        let published = stage.count_events(INVENTORY, &events, |event| event.state == "PUBLISHED").await?;
        Ok((published == 40).then_some(events))
    };
    let events = stage.claim_soon("40 events wait for payment in the broker", PATIENCE, published).await?;

    stage.step("The broker is killed and its data deleted, while 40 more orders arrive").await;
    let replicas = vec![stage.suite.clone()];
    let meanwhile = stage.place_meanwhile(NewOrder::crowd(&sku, 40, "tok_visa"), 20, replicas);
    stage.kill("nats").await?;
    stage.wipe_broker().await?;
    stage.start("nats").await?;
    stage.note("the broker is back, and empty: no streams, no consumers, no messages");

    stage
        .step("`provision keep` makes streams and consumers anew, and the relays compare them with their receipts")
        .await;
    placed.extend(meanwhile.placed().await?);
    let republished = async || {
        let again = |event: &OutboxEntry| event.state == "PUBLISHED" && event.republication > 0;
        Ok((stage.count_events(INVENTORY, &events, again).await? == 40).then_some(()))
    };
    stage
        .claim_soon("inventory publishes the 40 events again, which the broker has lost", PATIENCE, republished)
        .await?;

    stage.step("Payment charges again").await;
    stage.resume_consumer(PAYMENT, "process_payment").await?;
    stage.claim_tally(&placed, 80, Duration::from_secs(40)).await?;
    stage.claim_stock(&sku, 920, 80).await?;
    stage.claim_is("no event became a dead letter", stage.suite.count_dead_letters().await?, 0);
    Ok(())
}
