//! 8: the broker is away while orders arrive. They are accepted all the same, because their events wait in the outbox,
//! and nothing is held against anybody when the broker is back.

use std::time::Duration;

use crate::{
    demo::stage::{PATIENCE, Stage},
    suite::ORDER,
};

const ORDERS: usize = 100;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(1_000, 1_500).await?;

    stage.step("The broker is stopped").await;
    stage.stop("nats").await?;

    stage.step(&format!("{ORDERS} customers order all the same")).await;
    let placed = stage.place_all(&sku, ORDERS, "tok_visa").await?;
    stage.claim_is("every order was accepted", placed.len(), ORDERS);
    let events = stage.events_of(ORDER, &placed).await?;
    let waiting = stage.count_events(ORDER, &events, |event| event.state == "PENDING").await?;
    stage.claim_is("their events wait in order's outbox", waiting, ORDERS);
    stage.claim_stock(&sku, 1_000, 0).await?;

    stage.step("The broker is back").await;
    stage.start("nats").await?;
    stage.claim_tally(&placed, ORDERS, Duration::from_secs(40)).await?;
    stage.claim_stock(&sku, 900, 100).await?;

    stage.step("What the outage has cost").await;
    let published = async || {
        let published = stage.count_events(ORDER, &events, |event| event.state == "PUBLISHED").await?;
        Ok((published == ORDERS).then_some(()))
    };
    stage.claim_soon("none of the events is left in the outbox", PATIENCE, published).await?;
    stage.claim_is("no event became a dead letter", stage.suite.count_dead_letters().await?, 0);
    Ok(())
}
