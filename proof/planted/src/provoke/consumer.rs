//! Provocations of consumers: crashes before the commit, duplicates, lost acknowledgements, events of another build.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream, jetstream::message::PublishMessage};
use contracts::{
    INVENTORY, ORDER, PAYMENT, SERVICES,
    order_fulfillment::{OrderCreated, RESERVE_STOCK},
};
use saga::Event;
use serde_json::json;
use uuid::Uuid;

use crate::experiment::{DECLINED, Experiment, PLENTY};

/// Inventory and then payment crash between the last write and the commit. Their deliveries must be repeated.
pub async fn crash_before_commit(experiment: &mut Experiment) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "reserve_stock"), (PAYMENT, "process_payment")] {
        let crash = json!({"point": "before_commit", "kind": "crash", "first": 1, "scope": {"step": step}});
        experiment.crash(service, crash).await?;
    }
    experiment.look_for(Duration::from_secs(3)).await
}

/// Every event is in its stream three times, under three message ids, while some orders are declined and undone.
pub async fn publish_in_triplicate(experiment: &mut Experiment) -> anyhow::Result<()> {
    for service in SERVICES {
        experiment.arm(service, json!({"point": "bus_publish", "kind": "duplicate", "copies": 2})).await?;
    }
    experiment.order_available(3).await?;
    experiment.order(5, PLENTY, DECLINED).await?;
    experiment.wait_for_all_ends().await?;
    experiment.disarm().await
}

/// The acknowledgements of compensations get lost, so that they are delivered again.
pub async fn lose_acknowledgements(experiment: &mut Experiment) -> anyhow::Result<()> {
    for (service, step) in [(INVENTORY, "release_stock"), (PAYMENT, "refund_payment")] {
        let lost = json!({"point": "after_commit_before_ack", "kind": "drop", "first": 5, "scope": {"step": step}});
        experiment.arm(service, lost).await?;
    }
    experiment.order_available(2).await?;
    experiment.order(5, PLENTY, DECLINED).await?;
    // The audit waits for the redelivery only of what was published before it began.
    experiment.wait_for_all_ends().await
}

/// Five events of a newer version are published. When inventory has deferred them, a replica of the newer build processes them,
/// which its inbox records.
pub async fn publish_for_a_newer_build(experiment: &mut Experiment) -> anyhow::Result<()> {
    // Older than the suite, so that the audit does not ask for their transactions.
    let events: Vec<Uuid> =
        (1..=5).map(|number| Uuid::from_u128(experiment.testbed.before_all.as_u128() - number)).collect();
    let broker = jetstream::new(experiment.testbed.broker().await?);
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
    experiment.order_available(3).await?;
    let looked_at = "select count(*) = 5
        from (
            select event_id from inventory.delivery_attempt where attempts = 0
            union all
            select event_id from inventory.dead_letter
        ) looked_at";
    experiment.wait_until("inventory has deferred all of them", looked_at).await?;
    sqlx::query(
        "insert into inventory.inbox (event_id, consumer) select event_id, $2 from unnest($1::uuid[]) as t (event_id)",
    )
    .bind(&events)
    .bind(RESERVE_STOCK.consumer())
    .execute(&experiment.testbed.pool)
    .await?;
    Ok(())
}
