//! 19: a second replica of every service joins, then the first of each is killed under load. No order is lost and none
//! is refused.

use std::time::Duration;

use crate::{
    demo::stage::Stage,
    suite::{INVENTORY, NewOrder, ORDER, PAYMENT, SERVICES},
};

const ORDERS: usize = 200;

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product").await;
    let sku = stage.product(10_000, 1_300).await?;
    let first = stage.suite.clone();

    stage.step("A second replica of every service joins").await;
    let mut second = first.clone();
    for service in [INVENTORY, PAYMENT, ORDER] {
        let replica = stage.start_replica(service).await?;
        second = second.at(service, replica.addresses().of(service));
        stage.note(&format!("{}-2 is ready at {}", service.0, replica.addresses().of(service)));
    }

    stage.step("Orders arrive at both; one after the other, the first replicas are killed").await;
    let orders = NewOrder::crowd(&sku, ORDERS, "tok_visa");
    let meanwhile = stage.place_meanwhile(orders, 40, vec![first.clone(), second.clone()]);
    for service in SERVICES {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.kill(service.0).await?;
        stage.note(&format!("{} is killed, as by kill -9", service.0));
    }
    stage.suite = second;
    let placed = meanwhile.placed().await?;
    stage.claim_is("every order was accepted", placed.len(), ORDERS);

    stage.step("The second replicas do it all").await;
    stage.claim_tally(&placed, ORDERS, Duration::from_secs(30)).await?;
    stage.claim_stock(&sku, 10_000 - ORDERS as i64, ORDERS as i64).await?;
    stage.claim_is("no event became a dead letter", stage.suite.count_dead_letters().await?, 0);

    stage.step("The first ones come back, and the second ones go in peace").await;
    for service in [INVENTORY, PAYMENT, ORDER] {
        stage.start(service.0).await?;
        stage.stop_replica(service).await?;
    }
    stage.suite = first;
    let placed = stage.place(&NewOrder::of("mallory", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_confirmed(&ended).await
}
