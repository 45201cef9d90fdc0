//! 17: an undecodable event: a damaged copy of an earlier one. It becomes one dead letter at once, and all other events are
//! processed.

use std::time::Duration;

use anyhow::Context;
use async_nats::HeaderMap;

use crate::{
    audit,
    demo::scenario_run::ScenarioRun,
    suite::{NewOrder, PAYMENT},
};

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and an order that is confirmed", 1_000, 1_100).await?;
    let placed = run.place(&NewOrder::of("leo", &sku, 1, "tok_visa")).await?;
    let ended = run.claim_confirmed(placed.order_id).await?;
    let reserved = ended.saga.steps.iter().find(|step| step.step == "reserve_stock");
    let event_id = reserved.and_then(|step| step.event_id).context("the reservation has no event")?;

    run.step("Among 50 orders a damaged copy of its StockReserved is published to inventory's stream").await;
    run.expect_dead_letters(PAYMENT);
    let meanwhile = run.place_meanwhile(&sku, 50, 25, vec![run.suite.clone()]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    publish_damaged(run, event_id).await?;
    let placed = meanwhile.placed().await?;
    run.claim_tally(&placed, 50, Duration::from_secs(20)).await?;

    run.step("The damaged event").await;
    let dead = async || Ok(run.suite.pending_dead_letters(PAYMENT).await?.pop());
    let letter = run.claim_soon("it is a dead letter of payment", dead).await?;
    run.claim_is("the only one", run.suite.count_dead_letters().await?, 1);
    run.claim_is("of process_payment", letter.step.as_str(), "process_payment");
    run.claim_is("because it cannot be decoded", letter.reason.as_str(), "undecodable");
    run.claim_is("after one attempt, because a retry would not help", letter.attempts, 1);
    run.note(&letter.error_chain);

    run.step("An operator discards it").await;
    let letter = run.suite.discard(PAYMENT, letter.id, "a damaged copy, the original was processed").await?;
    run.claim_is("it is DISCARDED", letter.status.as_str(), "DISCARDED");
    run.note_actions(&letter);
    run.claim_order("its order is unchanged", ended.order.order_id, "CONFIRMED").await?;
    run.resolve_dead_letters(PAYMENT).await
}

/// Publishes an undecodable event with inventory's permissions.
async fn publish_damaged(run: &ScenarioRun, event_id: uuid::Uuid) -> anyhow::Result<()> {
    let (nats_user, nats_password) = ("inventory".to_owned(), run.publisher_password.clone());
    let broker = audit::connect_broker(&audit::Stores { nats_user, nats_password, ..run.stores.clone() }).await?;
    let mut headers = HeaderMap::new();
    headers.insert("ce-specversion", "1.0");
    headers.insert("ce-id", event_id.to_string());
    headers.insert("ce-type", "StockReserved.v1");
    headers.insert("ce-source", "inventory");
    let body = "{\"order_id\": \"not what it";
    let sent = broker.publish_with_headers("events.inventory.StockReserved", headers, body.into()).await?;
    let stored = sent.await?;
    run.note(&format!("the broker has stored it as {} {}: {body}", stored.stream, stored.sequence));
    Ok(())
}
