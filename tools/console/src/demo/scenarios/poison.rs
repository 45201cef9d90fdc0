//! 17: an event appears that nobody can read: a damaged copy of an earlier one. It becomes one dead letter, at once,
//! and everything else flows past it.

use std::time::Duration;

use anyhow::Context;
use async_nats::HeaderMap;

use crate::{
    audit,
    demo::stage::{PATIENCE, Stage},
    suite::{NewOrder, PAYMENT},
};

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("A new product, and an order that is confirmed").await;
    let sku = stage.product(1_000, 1_100).await?;
    let placed = stage.place(&NewOrder::of("leo", &sku, 1, "tok_visa")).await?;
    let ended = stage.ended(placed.order_id).await?;
    stage.claim_confirmed(&ended).await?;
    let reserved = ended.saga.steps.iter().find(|step| step.step == "reserve_stock");
    let event_id = reserved.and_then(|step| step.event_id).context("the reservation has no event")?;

    stage.step("In the middle of 50 orders a damaged copy of its StockReserved gets into inventory's stream").await;
    stage.expect_dead_letters(PAYMENT);
    let orders = NewOrder::crowd(&sku, 50, "tok_visa");
    let meanwhile = stage.place_meanwhile(orders, 25, vec![stage.suite.clone()]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    publish_damaged(stage, event_id).await?;
    let placed = meanwhile.placed().await?;
    stage.claim_tally(&placed, 50, Duration::from_secs(20)).await?;

    stage.step("What became of it").await;
    let buried = async || Ok(stage.suite.pending_dead_letters(PAYMENT).await?.pop());
    let letter = stage.claim_soon("it is a dead letter of payment", PATIENCE, buried).await?;
    stage.claim_is("the only one", stage.suite.count_dead_letters().await?, 1);
    stage.claim_is("of process_payment", letter.step.as_str(), "process_payment");
    stage.claim_is("because it cannot be read", letter.reason.as_str(), "undecodable");
    stage.claim_is("which no second attempt would change", letter.attempts, 1);
    stage.note(&letter.error_chain);

    stage.step("An operator gives it up").await;
    let letter = stage.suite.discard(PAYMENT, letter.id, "a damaged copy, its original was had").await?;
    stage.claim_is("it is DISCARDED", letter.status.as_str(), "DISCARDED");
    for action in &letter.actions {
        let reason = action.reason.as_deref().unwrap_or("no reason");
        stage.note(&format!("{} by {} ({reason}): {}", action.action, action.actor, action.outcome));
    }
    let unchanged = stage.suite.order(ended.order.order_id).await?.map(|order| order.status);
    stage.claim_is("the order that it spoke of is unchanged", unchanged.as_deref(), Some("CONFIRMED"));
    stage.no_dead_letter_left(PAYMENT).await
}

/// Publishes with inventory's rights what no version of inventory ever would.
async fn publish_damaged(stage: &Stage, event_id: uuid::Uuid) -> anyhow::Result<()> {
    let broker = audit::connect_broker(&audit::Stores {
        nats_user: "inventory".to_owned(),
        nats_password: stage.publisher_password.clone(),
        ..stage.stores.clone()
    })
    .await?;
    let mut headers = HeaderMap::new();
    headers.insert("ce-specversion", "1.0");
    headers.insert("ce-id", event_id.to_string());
    headers.insert("ce-type", "StockReserved.v1");
    headers.insert("ce-source", "inventory");
    let body = "{\"order_id\": \"not what it";
    let sent = broker.publish_with_headers("events.inventory.StockReserved", headers, body.into()).await?;
    let stored = sent.await?;
    stage.note(&format!("the broker keeps it as {} {}: {body}", stored.stream, stored.sequence));
    Ok(())
}
