//! 16: for half a minute the gateway declines every card. A decline is a business outcome: each order is cancelled at once, no
//! breaker opens, and no event becomes a dead letter.

use std::time::Duration;

use time::OffsetDateTime;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{Breaker, GatewayFaults, NewOrder, PAYMENT, SERVICES},
};

const SECONDS: usize = 30;
/// Orders a second.
const RATE: u32 = 10;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10_000, 2_000).await?;
    let before = latest_change(run).await?;

    run.step(&format!("The gateway declines every card for {SECONDS} seconds, at {RATE} orders a second")).await;
    run.arm_gateway(GatewayFaults { decline_rate: 1.0, ..GatewayFaults::default() }).await?;
    let count = SECONDS * RATE as usize;
    let placed = run.place_meanwhile(&sku, count, RATE, vec![run.suite.clone()]).placed().await?;
    run.claim_tally(&placed, 0, Duration::from_secs(15)).await?;
    run.claim_stock(&sku, 10_000, 0).await?;

    run.step("The state of the services").await;
    for service in SERVICES {
        let closed = run.suite.breakers(service).await?.items.iter().all(Breaker::is_closed);
        run.claim(&format!("all breakers of {} are closed", service.0), closed);
    }
    run.claim_is("and none of payment's has opened meanwhile", latest_change(run).await?, before);
    run.claim_is("no event became a dead letter", run.suite.count_dead_letters().await?, 0);

    run.step("The gateway approves again").await;
    run.disarm_gateway().await?;
    let placed = run.place(&NewOrder::of("kim", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(placed.order_id).await.map(drop)
}

async fn latest_change(run: &ScenarioRun) -> anyhow::Result<Option<OffsetDateTime>> {
    Ok(run.suite.breakers(PAYMENT).await?.changes.iter().map(|change| change.at).max())
}
