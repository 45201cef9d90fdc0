//! From the commit of an event to its place in the stream.
//!
//! Not audited: what is looked at is an order in the middle of its way; most are left there.

use anyhow::ensure;
use contracts::INVENTORY;
use serde_json::json;
use suite_tests::{Dancers, Stage, Tuning};

use super::{awaited, explained, finding, follow, found, kinds, says};
use crate::Test;

const RESERVED: &str = "select count(*) from inventory.outbox where event_type = 'StockReserved.v1'";

#[tokio::test]
async fn an_operator_has_paused_the_relay_of_another_service() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    suite.inventory.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    stage.becomes(RESERVED, 1).await?;
    let (explanation, paused) = found(&suite.order, &placed, "relay_paused").await?;
    says(&paused, &["operator", "relay of inventory"])?;
    ensure!(kinds(&explanation) == ["relay_paused", "publication_pending"], "{explanation:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    let pending = finding(&explanation, "publication_pending").unwrap();
    says(&pending, &["StockReserved", "relay of inventory", "last receipt"])?;
    ensure!(pending["since"].is_string(), "{pending:#}");
    follow(&paused, &suite.inventory).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn nobody_leads_the_relay_of_a_service_that_died_before_it_published() -> Test {
    let tuning = Tuning { relay_lease: std::time::Duration::from_secs(1), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    suite.inventory.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    stage.becomes(RESERVED, 1).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    drop(inventory);
    let (explanation, gone) = found(&order, &placed, "no_relay").await?;
    says(&gone, &["No replica of inventory"])?;
    ensure!(explanation["findings"].to_string().contains("Start a replica of inventory."), "{explanation:#}");
    let suite = Dancers::of(order, stage.start(INVENTORY).await?, payment);
    suite.inventory.client.post("/api/admin/relay/resume", &json!({})).await?.expect(200)?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn the_broker_is_away() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.nats.lock().await.stop().await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, away) = found(&suite.order, &placed, "broker_away").await?;
    says(&away, &["broker is away"])?;
    ensure!(kinds(&explanation) == ["broker_away", "publication_pending"], "{explanation:#}");
    ensure!(explanation["summary"].as_str().is_some_and(|s| s.contains("The broker is away")), "{explanation:#}");
    stage.nats.lock().await.start_again().await?;
    suite.saga_becomes(&placed, "COMPLETED").await?;
    let after = explained(&suite.order, &placed).await?;
    ensure!(kinds(&after).iter().all(|kind| *kind == "publication_pending"), "{after:#}");
    Ok(())
}

#[tokio::test]
async fn the_broker_refuses_an_event_until_it_is_parked() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.message_size("ORDER", 64).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, refused) = found(&suite.order, &placed, "publication_refused").await?;
    says(&refused, &["refused OrderCreated", "tried again"])?;
    ensure!(refused["since"].is_string() && awaited(&explanation) == ["reserve_stock of inventory"], "{explanation:#}");
    let (_, parked) = found(&suite.order, &placed, "publication_parked").await?;
    says(&parked, &["OrderCreated is parked", "5 times"])?;
    stage.message_size("ORDER", -1).await?;
    follow(&parked, &suite.order).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn an_event_waits_behind_one_of_the_same_order_that_the_broker_refuses() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.message_size("ORDER", 64).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    found(&suite.order, &placed, "publication_parked").await?;
    ensure!(suite.cancel(&placed).await? == 202);
    let (explanation, held) = found(&suite.order, &placed, "publication_held").await?;
    says(&held, &["OrderCancelled waits behind OrderCreated"])?;
    let both = ["release_stock of inventory", "refund_payment of payment"];
    ensure!(awaited(&explanation) == both, "{explanation:#}");
    let parked = finding(&explanation, "publication_parked").unwrap();
    stage.message_size("ORDER", -1).await?;
    follow(&parked, &suite.order).await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.audit().await
}

#[tokio::test]
async fn an_event_is_gone_from_the_outbox_without_having_been_published() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    suite.order.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    stage.execute("delete from orders.outbox").await?;
    let (explanation, missing) = found(&suite.order, &placed, "event_missing").await?;
    says(&missing, &["OrderCreated is neither in the outbox of order nor among the events", "lost"])?;
    ensure!(explanation["at_deadline"].as_str().is_some_and(|s| s.contains("times out")), "{explanation:#}");
    Ok(())
}
