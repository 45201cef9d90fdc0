//! 9: the broker loses its disk while orders are in flight. The publish acknowledgements in the outboxes show what it has lost,
//! and the relays publish again what is still needed.

use std::time::Duration;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{INVENTORY, OutboxEntry, PAYMENT},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and payment stops charging", 1_000, 1_500).await?;
    run.pause_consumer(PAYMENT, "process_payment").await?;

    run.step("40 orders reach payment: the events that they wait for are in the broker only").await;
    let mut placed = run.place_all(&sku, 40, "tok_visa").await?;
    let published = async || {
        let events = run.events_of(INVENTORY, &placed).await?;
        let published = run.count_events(INVENTORY, &events, |event| event.state == "PUBLISHED").await?;
        Ok((published == 40).then_some(events))
    };
    let events = run.claim_soon("40 events wait for payment in the broker", published).await?;

    run.step("The broker is killed and its data deleted, while 40 more orders arrive").await;
    let meanwhile = run.place_meanwhile(&sku, 40, 20, vec![run.suite.clone()]);
    run.kill("nats").await?;
    run.processes.run("wipe", "nats").await?;
    run.start("nats").await?;
    run.note("the broker is back, and empty: no streams, no consumers, no messages");

    run.step("`provision keep` recreates streams and consumers; the relays compare them with their acknowledgements")
        .await;
    placed.extend(meanwhile.placed().await?);
    let republished = async || {
        let again = |event: &OutboxEntry| event.state == "PUBLISHED" && event.republication > 0;
        Ok((run.count_events(INVENTORY, &events, again).await? == 40).then_some(()))
    };
    run.claim_soon("inventory publishes the 40 lost events again", republished).await?;

    run.step("Payment charges again").await;
    run.resume_consumer(PAYMENT, "process_payment").await?;
    run.claim_tally(&placed, 80, Duration::from_secs(40)).await?;
    run.claim_stock(&sku, 920, 80).await?;
    run.claim_is("no event became a dead letter", run.suite.count_dead_letters().await?, 0);
    Ok(())
}
