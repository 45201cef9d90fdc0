//! 19: a second replica of every service joins, then the first of each is killed under load. No order is lost and none
//! is refused.

use std::time::Duration;

use crate::{
    demo::scenario_run::ScenarioRun,
    suite::{INVENTORY, NewOrder, ORDER, PAYMENT, SERVICES},
};

const ORDERS: usize = 200;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product", 10_000, 1_300).await?;
    let first = run.suite.clone();

    run.step("A second replica of every service joins").await;
    let mut second = first.clone();
    for service in [INVENTORY, PAYMENT, ORDER] {
        let replica = run.start_replica(service).await?;
        second = second.at(service, replica.addresses().of(service));
        run.note(&format!("{}-2 is ready at {}", service.0, replica.addresses().of(service)));
    }

    run.step("Orders arrive at both; one after the other, the first replicas are killed").await;
    let meanwhile = run.place_meanwhile(&sku, ORDERS, 40, vec![first.clone(), second.clone()]);
    for service in SERVICES {
        tokio::time::sleep(Duration::from_secs(1)).await;
        run.kill(service.0).await?;
        run.note(&format!("{} is killed, as by kill -9", service.0));
    }
    run.suite = second;
    let placed = meanwhile.placed().await?;
    run.claim_is("every order was accepted", placed.len(), ORDERS);

    run.step("The second replicas do all the work").await;
    run.claim_tally(&placed, ORDERS, Duration::from_secs(30)).await?;
    run.claim_stock(&sku, 10_000 - ORDERS as i64, ORDERS as i64).await?;
    run.claim_is("no event became a dead letter", run.suite.count_dead_letters().await?, 0);

    run.step("The first replicas come back, and the second ones are stopped").await;
    for service in [INVENTORY, PAYMENT, ORDER] {
        run.start(service.0).await?;
        run.stop_replica(service).await?;
    }
    run.suite = first;
    let placed = run.place(&NewOrder::of("mallory", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(placed.order_id).await.map(drop)
}
