//! Provocations of consumers: crashes before the commit, repeats, lost acknowledgements, events of another build.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream, jetstream::message::PublishMessage};
use contracts::{
    INVENTORY, ORDER, PAYMENT, SERVICES,
    order_fulfillment::{OrderCreated, RESERVE_STOCK},
};
use saga::Event;
use serde_json::json;
use uuid::Uuid;

use crate::scene::{DECLINED, PLENTY, Scene};

/// Inventory and then payment crash when everything is written and nothing is committed. What they had in hand must come
/// again.
pub async fn crash_before_commit(scene: &mut Scene) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "reserve_stock"), (PAYMENT, "process_payment")] {
        let crash = json!({"point": "before_commit", "kind": "crash", "first": 1, "scope": {"step": step}});
        scene.crash(service, crash).await?;
    }
    scene.look_for(Duration::from_secs(3)).await
}

/// Every event is in its stream three times, under three message ids, while some orders are declined and undone.
pub async fn publish_in_triplicate(scene: &mut Scene) -> anyhow::Result<()> {
    for service in SERVICES {
        scene.arm(service, json!({"point": "bus_publish", "kind": "duplicate", "copies": 2})).await?;
    }
    scene.order_what_can_be_had(3).await?;
    scene.order(5, PLENTY, DECLINED).await?;
    scene.wait_for_all_ends().await?;
    scene.disarm().await
}

/// The acknowledgements of compensations get lost, so that they are delivered again.
pub async fn lose_acknowledgements(scene: &mut Scene) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "release_stock"), (PAYMENT, "refund_payment")] {
        let lost = json!({"point": "after_commit_before_ack", "kind": "drop", "first": 5, "scope": {"step": step}});
        scene.arm(service, lost).await?;
    }
    scene.order_what_can_be_had(2).await?;
    scene.order(5, PLENTY, DECLINED).await?;
    // The audit waits for the redelivery only of what was published before it began.
    scene.wait_for_all_ends().await
}

/// Five events of a newer version are published. When inventory has looked at them, a replica of the newer build has them,
/// of which its inbox tells.
pub async fn publish_for_a_newer_build(scene: &mut Scene) -> anyhow::Result<()> {
    // Older than the suite, so that the audit does not ask for their transactions.
    let events: Vec<Uuid> = (1..=5).map(|number| Uuid::from_u128(scene.stage.before_all.as_u128() - number)).collect();
    let broker = jetstream::new(scene.stage.broker().await?);
    for event_id in &events {
        let mut headers = HeaderMap::new();
        headers.insert("ce-specversion", "1.0");
        headers.insert("ce-id", event_id.to_string());
        headers.insert("ce-source", format!("/services/{ORDER}"));
        headers.insert("ce-type", format!("{}.v{}", OrderCreated::TYPE.name, OrderCreated::TYPE.version + 1));
        headers.insert("ce-correlationid", "newer");
        let message = PublishMessage::build().payload("{}".into()).headers(headers).message_id(event_id.to_string());
        broker.send_publish(OrderCreated::TYPE.subject(ORDER), message).await?.await?;
    }
    scene.order_what_can_be_had(3).await?;
    let looked_at = "select count(*) = 5
        from (
            select event_id from inventory.delivery_attempt where attempts = 0
            union all
            select event_id from inventory.dead_letter
        ) looked_at";
    scene.wait_until("inventory has looked at all of them", looked_at).await?;
    sqlx::query(
        "insert into inventory.inbox (event_id, consumer) select event_id, $2 from unnest($1::uuid[]) as t (event_id)",
    )
    .bind(&events)
    .bind(RESERVE_STOCK.consumer())
    .execute(&scene.stage.pool)
    .await?;
    Ok(())
}
