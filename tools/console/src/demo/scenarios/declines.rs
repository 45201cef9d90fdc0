//! 16: for half a minute the gateway declines every card. Refusals are business: each order is cancelled at once, no
//! breaker opens, and nothing becomes a dead letter.

use std::time::Duration;

use time::OffsetDateTime;

use crate::{
    demo::stage::Stage,
    suite::{Breaker, GatewayFaults, NewOrder, PAYMENT, SERVICES},
};

const SECONDS: usize = 30;
/// Orders a second.
const RATE: u32 = 10;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10_000, 2_000).await?;
    let before = latest_change(stage).await?;

    stage.step(&format!("The gateway declines every card for {SECONDS} seconds, at {RATE} orders a second")).await;
    stage.break_gateway(GatewayFaults { decline_rate: 1.0, ..GatewayFaults::default() }).await?;
    let count = SECONDS * RATE as usize;
    let orders = NewOrder::crowd(&sku, count, "tok_visa");
    let placed = stage.place_meanwhile(orders, RATE, vec![stage.suite.clone()]).placed().await?;
    stage.claim_tally(&placed, 0, Duration::from_secs(15)).await?;
    stage.claim_stock(&sku, 10_000, 0).await?;

    stage.step("What the services make of it").await;
    for service in SERVICES {
        let Some(breakers) = stage.suite.breakers(service).await? else { continue };
        let closed = breakers.items.iter().all(Breaker::is_closed);
        stage.claim(&format!("all breakers of {} are closed", service.0), closed);
    }
    stage.claim_is("and none of payment's was open meanwhile", latest_change(stage).await?, before);
    stage.claim_is("no event became a dead letter", stage.suite.count_dead_letters().await?, 0);

    stage.step("The gateway approves again").await;
    stage.mend_gateway().await?;
    let placed = stage.place(&NewOrder::of("kim", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_confirmed(&ended).await
}

/// When one of payment's breakers last changed its state.
async fn latest_change(stage: &Stage) -> anyhow::Result<Option<OffsetDateTime>> {
    let changes = stage.suite.breakers(PAYMENT).await?.map(|breakers| breakers.changes).unwrap_or_default();
    Ok(changes.iter().map(|change| change.at).max())
}
