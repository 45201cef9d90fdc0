//! 11: the gateway takes longer than payment waits. The breaker of process_payment opens and protects the gateway; the events
//! wait in the broker without counted attempts; when the gateway has recovered, all orders are paid.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::sleep;

use crate::{
    audit,
    demo::scenario_run::ScenarioRun,
    suite::{Breaker, GatewayFaults, PAYMENT},
};

const STEP: &str = "process_payment";
const ORDERS: usize = 20;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and a payment service with shorter timeouts", 1_000, 1_900).await?;
    let short_timeouts =
        [("GATEWAY_TIMEOUT", "300ms"), ("GATEWAY_PATIENCE", "600ms"), ("RESILIENCE", "process_payment.open_for=8s")];
    run.restart_with("payment", &short_timeouts).await?;
    let closed = breakers(run).await?.iter().all(Breaker::is_closed);
    run.claim("the breaker is closed, in every replica", closed);

    run.step("The gateway takes two seconds for everything").await;
    run.arm_gateway(GatewayFaults { latency_ms: 2_000, ..GatewayFaults::default() }).await?;

    run.step(&format!("{ORDERS} orders arrive")).await;
    let placed = run.place_all(&sku, ORDERS, "tok_visa").await?;
    let open = async || Ok(breakers(run).await.ok().filter(|breakers| breakers.iter().all(|b| b.state == "open")));
    let opened = run.claim_soon("the breaker opens, in every replica", open).await?;
    for breaker in &opened {
        run.note(&format!("{}: {}", breaker.replica, breaker.why.as_deref().unwrap_or_default()));
    }

    run.step("While it is open, the gateway is not called and no attempt is counted").await;
    // Calls in flight may still arrive in the first second, and it probes at the end.
    let in_between = |breaker: &Breaker| breaker.retry_in_seconds.is_some_and(|left| (2.5..7.0).contains(&left));
    let quiet = async || Ok(breakers(run).await.ok().filter(|breakers| breakers.iter().all(in_between)));
    run.claim_soon("it will be open for some seconds", quiet).await?;
    let before = deliveries(run).await?;
    sleep(Duration::from_secs(2)).await;
    run.claim_is("for two of them no event is delivered to process_payment", deliveries(run).await? - before, 0);
    run.claim_is("no event became a dead letter", run.suite.count_dead_letters().await?, 0);

    run.step("The gateway recovers").await;
    run.disarm_gateway().await?;
    // A replica without an event left to probe with stays half-open.
    let closed = async || Ok(breakers(run).await.ok().filter(|breakers| breakers.iter().any(Breaker::is_closed)));
    run.claim_soon("the breaker probes, and closes", closed).await?;
    run.claim_tally(&placed, ORDERS, Duration::from_secs(25)).await?;
    run.claim_stock(&sku, 1_000 - ORDERS as i64, ORDERS as i64).await?;

    run.step("The states of the breaker").await;
    let mut states: Vec<String> = Vec::new();
    let began = placed.iter().map(|order| order.created_at).min().context("no order was placed")?;
    let changes = run.suite.breakers(PAYMENT).await?.changes;
    for change in changes.iter().rev().filter(|change| change.step == STEP && change.at >= began) {
        run.note(&format!("{} -> {}: {}", change.from, change.to, change.why.as_deref().unwrap_or_default()));
        states.push(change.to.clone());
    }
    let all_states = ["open", "half-open", "closed"].iter().all(|to| states.iter().any(|state| state == to));
    run.claim("it went from closed to open to half-open to closed", all_states);
    run.restart("payment").await
}

async fn breakers(run: &ScenarioRun) -> anyhow::Result<Vec<Breaker>> {
    let mut breakers = run.suite.breakers(PAYMENT).await?.items;
    breakers.retain(|breaker| breaker.step == STEP);
    ensure!(!breakers.is_empty(), "the step has no breaker");
    Ok(breakers)
}

/// How often the broker has delivered an event to the step so far, repeats included.
async fn deliveries(run: &ScenarioRun) -> anyhow::Result<u64> {
    let broker = audit::connect_broker(&run.stores).await?;
    Ok(audit::deliveries(&broker, "INVENTORY", "payment-process_payment").await?)
}
