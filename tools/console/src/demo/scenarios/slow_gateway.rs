//! 11: the gateway takes longer than payment waits. The breaker of process_payment opens and spares the gateway; what
//! is to be paid waits in the broker, not counted against anybody; and when the gateway has recovered it is all paid.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::sleep;

use crate::{
    audit,
    demo::stage::{PATIENCE, Stage},
    suite::{Breaker, GatewayFaults, PAYMENT},
};

const STEP: &str = "process_payment";
const ORDERS: usize = 20;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and a payment service with less patience than usual").await;
    let sku = stage.product(1_000, 1_900).await?;
    let impatient =
        [("GATEWAY_TIMEOUT", "300ms"), ("GATEWAY_PATIENCE", "600ms"), ("RESILIENCE", "process_payment.open_for=8s")];
    stage.restart_with("payment", &impatient).await?;
    let closed = breakers(stage).await?.iter().all(Breaker::is_closed);
    stage.claim("the breaker is closed, in every replica", closed);

    stage.step("The gateway takes two seconds for everything").await;
    stage.break_gateway(GatewayFaults { latency_ms: 2_000, ..GatewayFaults::default() }).await?;

    stage.step(&format!("{ORDERS} orders arrive")).await;
    let placed = stage.place_all(&sku, ORDERS, "tok_visa").await?;
    let open = async || Ok(breakers(stage).await.ok().filter(|breakers| breakers.iter().all(|b| b.state == "open")));
    let opened = stage.claim_soon("the breaker opens, in every replica", PATIENCE, open).await?;
    for breaker in &opened {
        stage.note(&format!("{}: {}", breaker.replica, breaker.why.as_deref().unwrap_or_default()));
    }

    stage.step("While it is open, nobody asks the gateway, and nothing is counted").await;
    // What was on its way when it opened may still arrive in the first second, and in the end it probes.
    let in_between = |breaker: &Breaker| breaker.retry_in_seconds.is_some_and(|left| (2.5..7.0).contains(&left));
    let quiet = async || Ok(breakers(stage).await.ok().filter(|breakers| breakers.iter().all(in_between)));
    stage.claim_soon("it will be open for some seconds", PATIENCE, quiet).await?;
    let before = deliveries(stage).await?;
    sleep(Duration::from_secs(2)).await;
    stage.claim_is("for two of them no event is delivered to process_payment", deliveries(stage).await? - before, 0);
    stage.claim_is("no event became a dead letter", stage.suite.count_dead_letters().await?, 0);

    stage.step("The gateway recovers").await;
    stage.mend_gateway().await?;
    // One whose replica finds nothing left to probe with stays half-open.
    let closed = async || Ok(breakers(stage).await.ok().filter(|breakers| breakers.iter().any(Breaker::is_closed)));
    stage.claim_soon("the breaker probes, and closes", PATIENCE, closed).await?;
    stage.claim_tally(&placed, ORDERS, Duration::from_secs(25)).await?;
    stage.claim_stock(&sku, 1_000 - ORDERS as i64, ORDERS as i64).await?;

    stage.step("The breaker's way").await;
    let listed = stage.suite.breakers(PAYMENT).await?.context("payment has no breakers")?;
    let mut ways: Vec<String> = Vec::new();
    let began = placed.iter().map(|order| order.created_at).min().context("no order was placed")?;
    for change in listed.changes.iter().rev().filter(|change| change.step == STEP && change.at >= began) {
        stage.note(&format!("{} -> {}: {}", change.from, change.to, change.why.as_deref().unwrap_or_default()));
        ways.push(change.to.clone());
    }
    let went = |to: &str| ways.iter().any(|way| way == to);
    stage.claim(
        "it went from closed to open to half-open to closed",
        went("open") && went("half-open") && went("closed"),
    );
    stage.restart("payment").await
}

/// The step's breaker in each replica.
async fn breakers(stage: &Stage) -> anyhow::Result<Vec<Breaker>> {
    let breakers = stage.suite.breakers(PAYMENT).await?.context("payment has no breakers")?;
    let of_step: Vec<Breaker> = breakers.items.into_iter().filter(|breaker| breaker.step == STEP).collect();
    ensure!(!of_step.is_empty(), "the step has no breaker");
    Ok(of_step)
}

/// How often the broker has delivered an event to the step so far, repeats included.
async fn deliveries(stage: &Stage) -> anyhow::Result<u64> {
    let broker = audit::connect_broker(&stage.stores).await?;
    Ok(audit::deliveries(&broker, "INVENTORY", "payment-process_payment").await?)
}
