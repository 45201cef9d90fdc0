//! 8: the broker is down while orders arrive. They are accepted, because their events wait in the outbox, and the outage counts
//! as no failed attempt.

use std::time::Duration;

use crate::{demo::scenario_run::ScenarioRun, suite::ORDER};

const ORDERS: usize = 100;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 1_000, 1_500).await?;

    run.step("The broker is stopped").await;
    run.stop("nats").await?;

    run.step(&format!("{ORDERS} customers order without the broker")).await;
    let placed = run.place_all(&sku, ORDERS, "tok_visa").await?;
    run.claim_is("every order was accepted", placed.len(), ORDERS);
    let events = run.events_of(ORDER, &placed).await?;
    let waiting = run.count_events(ORDER, &events, |event| event.state == "PENDING").await?;
    run.claim_is("their events wait in order's outbox", waiting, ORDERS);
    run.claim_stock(&sku, 1_000, 0).await?;

    run.step("The broker is back").await;
    run.start("nats").await?;
    run.claim_tally(&placed, ORDERS, Duration::from_secs(40)).await?;
    run.claim_stock(&sku, 900, 100).await?;

    run.step("The outage has cost no event").await;
    let published = async || {
        let published = run.count_events(ORDER, &events, |event| event.state == "PUBLISHED").await?;
        Ok((published == ORDERS).then_some(()))
    };
    run.claim_soon("none of the events is left in the outbox", published).await?;
    run.claim_is("no event became a dead letter", run.suite.count_dead_letters().await?, 0);
    Ok(())
}
