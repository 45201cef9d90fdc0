//! Each obstacle is brought about, told as what it is, and taken away.

use anyhow::ensure;
use async_nats::HeaderMap;
use contracts::{INVENTORY, ORDER, PAYMENT};
use serde_json::{Value, json};
use sqlx::Connection;
use suite_tests::{Dancers, Forged, Stage, Tuning, order_of};
use testkit::eventually;

use super::{LIMIT, awaited, follow, found, kinds};
use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str = "what is looked at is an order in the middle of its way; most are left there";

const RESERVED: &str = "select count(*) from inventory.outbox where event_type = 'StockReserved.v1'";

/// An order whose reservation waits in the outbox, because the relay of inventory is paused.
async fn unpublished() -> anyhow::Result<(Stage, Dancers, Value)> {
    let tuning = Tuning { relay_lease: std::time::Duration::from_secs(1), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    suite.inventory.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    stage.becomes(RESERVED, 1).await?;
    Ok((stage, suite, placed))
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_operator_has_paused_the_relay() -> Test {
    let (_stage, suite, placed) = unpublished().await?;
    let (explanation, paused) = found(&suite.order, &placed, "relay_paused", &["operator", "inventory"]).await?;
    ensure!(kinds(&explanation) == ["relay_paused", "publication_pending"], "{explanation:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    found(&suite.order, &placed, "publication_pending", &["StockReserved", "relay of inventory"]).await?;
    follow(&paused, &suite.inventory).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_service_died_before_it_published() -> Test {
    let (stage, Dancers { order, inventory, payment, others }, placed) = unpublished().await?;
    drop(inventory);
    let (_, gone) = found(&order, &placed, "no_relay", &["No replica of inventory"]).await?;
    ensure!(gone["remedy"]["what"] == "Start a replica of inventory.", "{gone:#}");
    let suite = Dancers { inventory: stage.start(INVENTORY).await?, order, payment, others };
    suite.inventory.client.post("/api/admin/relay/resume", &json!({})).await?.expect(200)?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_broker_is_away() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.nats.lock().await.stop().await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, _) = found(&suite.order, &placed, "broker_away", &["broker is away"]).await?;
    ensure!(kinds(&explanation) == ["broker_away", "publication_pending"], "{explanation:#}");
    ensure!(explanation["summary"].as_str().is_some_and(|s| s.contains("The broker is away")), "{explanation:#}");
    stage.nats.lock().await.start_again().await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test]
async fn the_broker_refuses_an_event_and_the_next_one_waits() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.message_size("ORDER", 64).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    found(&suite.order, &placed, "publication_refused", &["refused OrderCreated", "tried again"]).await?;
    let (_, parked) =
        found(&suite.order, &placed, "publication_parked", &["OrderCreated is parked", "5 times"]).await?;
    ensure!(suite.cancel(&placed).await? == 202);
    let words = ["OrderCancelled waits behind OrderCreated"];
    let (explanation, _) = found(&suite.order, &placed, "publication_held", &words).await?;
    let both = ["release_stock of inventory", "refund_payment of payment"];
    ensure!(awaited(&explanation) == both && kinds(&explanation) == ["publication_held"], "{explanation:#}");
    stage.message_size("ORDER", -1).await?;
    follow(&parked, &suite.order).await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.audit().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_is_gone_without_having_been_published() -> Test {
    let (stage, suite, placed) = unpublished().await?;
    stage.execute("delete from inventory.outbox").await?;
    let words = ["StockReserved is neither in the outbox of inventory nor among the events", "lost"];
    let (explanation, _) = found(&suite.order, &placed, "event_missing", &words).await?;
    ensure!(explanation["at_deadline"].as_str().is_some_and(|s| s.contains("times out")), "{explanation:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_has_the_event_and_is_not_done() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    // Whoever wants the product waits for this transaction.
    let mut other = sqlx::PgConnection::connect(&stage.database.admin_url()).await?;
    let mut lock = other.begin().await?;
    sqlx::query("lock table inventory.product in exclusive mode").execute(&mut *lock).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let words = ["OrderCreated is in the stream ORDER", "reserve_stock of inventory has not finished"];
    let (explanation, under_way) = found(&suite.order, &placed, "under_way", &words).await?;
    ensure!(kinds(&explanation) == ["under_way"] && under_way["since"].is_string(), "{explanation:#}");
    lock.rollback().await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn only_another_build_can_read_the_event() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let published = "select stream_sequence from inventory.outbox_published where event_type = 'StockReserved.v1'";
    let sequence: i64 =
        eventually(LIMIT, async || sqlx::query_scalar(published).fetch_optional(&stage.pool).await).await?;
    // As if a newer inventory had published it.
    let stream = stage.jetstream().await?.get_stream("INVENTORY").await?;
    let stored = stream.get_raw_message(sequence.unsigned_abs()).await?;
    stream.delete_message(stored.sequence).await?;
    let mut headers = HeaderMap::new();
    for (name, values) in stored.headers.iter().filter(|(name, _)| !name.to_string().starts_with("Nats-")) {
        values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
    }
    let forged = Forged::bytes(&stored.subject, headers, stored.payload.to_vec());
    stage.publish(&forged.header("ce-type", "StockReserved.v2")).await?;
    stage.resume(&suite.payment, "process_payment").await?;
    let words = ["payment cannot read StockReserved for process_payment", "is a StockReserved.v2", "another build"];
    found(&suite.order, &placed, "retry_wait", &words).await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_service_that_should_go_on_is_not_there() -> Test {
    let tuning = Tuning { relay_lease: std::time::Duration::from_secs(1), ..Tuning::default() };
    let stage = Stage::with(tuning).await?;
    let (order, inventory) = (stage.start(ORDER).await?, stage.start(INVENTORY).await?);
    inventory.client.create_product("A", 100, 9).await?.expect(201)?;
    let placed = eventually(LIMIT, async || {
        order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201).map(Some)
    })
    .await?;
    let words = ["No replica of payment keeps its lease", "process_payment"];
    let (explanation, never) = found(&order, &placed, "service_down", &words).await?;
    ensure!(never["since"].is_null() && never["remedy"]["what"] == "Start a replica of payment.", "{never:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    let payment = stage.start(PAYMENT).await?;
    let suite = Dancers::of(order, inventory, payment).with_others(&stage).await?;
    suite.saga_becomes(&placed, "COMPLETED").await?;
    let Dancers { order, inventory, payment, others } = suite;
    drop(payment);
    let placed = order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    found(&order, &placed, "service_down", &words).await?;
    // Until here it had to be there.
    drop((inventory, others));
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_steps_circuit_breaker_is_open() -> Test {
    let resilience = "process_payment.open_for=1h,process_payment.attempts=100,process_payment.initial=10ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    stage.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = suite.place_many(8, "tok_visa").await?;
    let words = ["circuit breaker of process_payment of payment is open in replica payment-"];
    let (_, open) = found(&suite.order, &placed[7], "breaker_open", &words).await?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    follow(&open, &suite.payment).await?;
    suite.sagas_become(&placed, "COMPLETED").await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_tries_the_event_again_and_gives_it_up() -> Test {
    let resilience = "process_payment.attempts=3,process_payment.initial=2s,process_payment.max=2s";
    let (stage, suite) = Stage::selling_with(Tuning { resilience, ..Tuning::default() }, 100, 1_000).await?;
    // Payment can write no payment of exactly this amount.
    stage.execute("alter table payment.payment add constraint forbidden check (amount <> 100)").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let words = ["process_payment of payment has failed on StockReserved", "forbidden", "It is tried again"];
    found(&suite.order, &placed, "retry_wait", &words).await?;
    let words = ["StockReserved is a dead letter of process_payment of payment", "forbidden", "after 0 replays"];
    let (explanation, dead) = found(&suite.order, &placed, "dead_letter", &words).await?;
    ensure!(kinds(&explanation) == ["dead_letter"], "{explanation:#}");
    stage.execute("alter table payment.payment drop constraint forbidden").await?;
    follow(&dead, &suite.payment).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_card_processor_has_not_answered() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.break_gateway(&json!({"latency_ms": 2_000})).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, asked) = found(&suite.order, &placed, "at_gateway", &["to charge payment"]).await?;
    ensure!(kinds(&explanation) == ["at_gateway"] && asked["since"].is_string(), "{explanation:#}");
    follow(&asked, &suite.payment).await?;
    suite.saga_becomes(&placed, "COMPLETED").await?;
    ensure!(suite.cancel(&placed).await? == 202);
    found(&suite.order, &placed, "at_gateway", &["back, if it was taken"]).await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    // Also of an order that was never charged.
    let unfillable = suite.place(&[("A", 2_000)], "tok_visa").await?;
    found(&suite.order, &unfillable, "at_gateway", &["back, if it was taken"]).await?;
    suite.saga_becomes(&unfillable, "COMPENSATED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_is_done_and_the_saga_goes_on_at_this_moment() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&placed, "IN_PROGRESS").await?;
    // The moment between the commit of the step and the next look at the saga, made to last.
    let (explanation, _) = found(&suite.order, &placed, "consumer_paused", &[]).await?;
    let event_id: uuid::Uuid = explanation["waiting_for"][0]["event_id"].as_str().unwrap_or_default().parse()?;
    sqlx::query("insert into payment.inbox (event_id, consumer) values ($1, 'payment-process_payment')")
        .bind(event_id)
        .execute(&stage.pool)
        .await?;
    let words = ["process_payment of payment has handled StockReserved"];
    let (explanation, _) = found(&suite.order, &placed, "handled", &words).await?;
    ensure!(kinds(&explanation) == ["handled"], "{explanation:#}");
    Ok(())
}
