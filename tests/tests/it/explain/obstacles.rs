//! Each obstacle is created, must be explained as such, and is removed.

use sqlx::Connection;

use super::{UNAUDITED, awaited, follow, found, kinds};
use crate::prelude::*;

const RESERVED: &str = "select count(*) from inventory.outbox where event_type = 'StockReserved.v1'";

/// An order whose reservation waits in the outbox, because the relay of inventory is paused.
async fn unpublished() -> anyhow::Result<(TestSuite, Participants, Value)> {
    let tuning = Tuning { relay_lease: Duration::from_secs(1), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1_000).await?;
    participants.inventory.client.act("/api/admin/relay/pause").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    suite.becomes(RESERVED, 1).await?;
    Ok((suite, participants, placed))
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_operator_has_paused_the_relay() -> Test {
    let (_suite, participants, placed) = unpublished().await?;
    let (explanation, paused) = found(&participants.order, &placed, "relay_paused", &["operator", "inventory"]).await?;
    ensure!(kinds(&explanation) == ["relay_paused", "publication_pending"], "{explanation:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    found(&participants.order, &placed, "publication_pending", &["StockReserved", "relay of inventory"]).await?;
    follow(&paused, &participants.inventory).await?;
    participants.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_service_died_before_it_published() -> Test {
    let (suite, mut participants, placed) = unpublished().await?;
    drop(participants.inventory);
    let (_, gone) = found(&participants.order, &placed, "no_relay", &["No replica of inventory"]).await?;
    ensure!(gone["remedy"]["what"] == "Start a replica of inventory.", "{gone:#}");
    participants.inventory = suite.start(INVENTORY).await?;
    participants.inventory.client.act("/api/admin/relay/resume").await?;
    participants.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_broker_is_away() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    suite.nats.lock().await.stop().await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, _) = found(&participants.order, &placed, "broker_away", &["broker cannot be reached"]).await?;
    ensure!(kinds(&explanation) == ["broker_away", "publication_pending"], "{explanation:#}");
    let summary = explanation["summary"].as_str().unwrap_or_default();
    ensure!(summary.contains("The broker cannot be reached"), "{explanation:#}");
    suite.nats.lock().await.start_again().await?;
    participants.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test]
async fn the_broker_refuses_an_event_and_the_next_one_waits() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    suite.message_size("ORDER", 64).await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let words = ["OrderCreated is parked", "larger than its stream accepts"];
    let (_, parked) = found(&participants.order, &placed, "publication_parked", &words).await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    follow(&parked, &participants.order).await?;
    let words = ["refused OrderCreated 1 times", "retried"];
    found(&participants.order, &placed, "publication_refused", &words).await?;
    participants.order.client.act("/api/admin/relay/resume").await?;
    let (_, parked) = found(&participants.order, &placed, "publication_parked", &["OrderCreated is parked"]).await?;
    ensure!(participants.cancel(&placed).await? == 202);
    let words = ["OrderCancelled waits for OrderCreated"];
    let (explanation, _) = found(&participants.order, &placed, "publication_held", &words).await?;
    let both = ["release_stock of inventory", "refund_payment of payment"];
    ensure!(awaited(&explanation) == both && kinds(&explanation) == ["publication_held"], "{explanation:#}");
    suite.message_size("ORDER", -1).await?;
    follow(&parked, &participants.order).await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_event_is_gone_without_having_been_published() -> Test {
    let (suite, participants, placed) = unpublished().await?;
    suite.execute("delete from inventory.outbox").await?;
    let words = ["StockReserved is neither in the outbox of inventory nor among the events", "lost"];
    let (explanation, _) = found(&participants.order, &placed, "event_missing", &words).await?;
    ensure!(explanation["at_deadline"].as_str().is_some_and(|s| s.contains("times out")), "{explanation:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_has_the_event_and_is_running() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    // This transaction blocks every other one that needs the product.
    let mut other = sqlx::PgConnection::connect(&suite.database.admin_url()).await?;
    let mut lock = other.begin().await?;
    sqlx::query("lock table inventory.product in exclusive mode").execute(&mut *lock).await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let words = ["OrderCreated is in the stream ORDER", "reserve_stock of inventory has not finished"];
    let (explanation, under_way) = found(&participants.order, &placed, "under_way", &words).await?;
    ensure!(kinds(&explanation) == ["under_way"] && under_way["since"].is_string(), "{explanation:#}");
    lock.rollback().await?;
    participants.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn only_another_build_can_read_the_event() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let published = "select stream_sequence from inventory.outbox_published where event_type = 'StockReserved.v1'";
    let sequence: i64 = eventually(async || sqlx::query_scalar(published).fetch_optional(&suite.pool).await).await?;
    // As if a newer inventory had published it.
    let stream = suite.jetstream().await?.get_stream("INVENTORY").await?;
    let stored = stream.get_raw_message(sequence.unsigned_abs()).await?;
    stream.delete_message(stored.sequence).await?;
    let forged = Forged::again(&stored.subject, &stored.headers, stored.payload);
    suite.publish(&forged.header("ce-type", "StockReserved.v2")).await?;
    suite.resume(&participants.payment, "process_payment").await?;
    let words = ["payment cannot read StockReserved for process_payment", "is a StockReserved.v2", "another build"];
    found(&participants.order, &placed, "retry_wait", &words).await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_service_of_the_next_step_is_down() -> Test {
    let tuning = Tuning { relay_lease: Duration::from_secs(1), ..Tuning::default() };
    let suite = TestSuite::with(tuning).await?;
    let (order, inventory) = (suite.start(ORDER).await?, suite.start(INVENTORY).await?);
    inventory.client.create_product("A", 100, 9).await?.expect(201)?;
    let placed = eventually(async || order.client.order(&[("A", 1)], "tok_visa").await.map(Some)).await?;
    let words = ["No replica of payment keeps its lease", "process_payment"];
    let (explanation, never) = found(&order, &placed, "service_down", &words).await?;
    ensure!(never["since"].is_null() && never["remedy"]["what"] == "Start a replica of payment.", "{never:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    let payment = suite.start(PAYMENT).await?;
    let participants = Participants::of(order, inventory, payment).with_others(&suite).await?;
    participants.saga_becomes(&placed, "COMPLETED").await?;
    drop(participants.payment);
    let placed = participants.order.client.order(&[("A", 1)], "tok_visa").await?;
    found(&participants.order, &placed, "service_down", &words).await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_steps_circuit_breaker_is_open() -> Test {
    let resilience = "process_payment.open_for=1h,process_payment.attempts=100,process_payment.initial=10ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1_000).await?;
    suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = participants.place_many(8, "tok_visa").await?;
    let words = ["circuit breaker of process_payment of payment is open in replica payment-"];
    let (_, open) = found(&participants.order, &placed[7], "breaker_open", &words).await?;
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    follow(&open, &participants.payment).await?;
    participants.sagas_become(&placed, "COMPLETED").await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_tries_the_event_again_and_gives_it_up() -> Test {
    let resilience = "process_payment.attempts=3,process_payment.initial=2s,process_payment.max=2s";
    let (suite, participants) = TestSuite::selling_with(Tuning { resilience, ..Tuning::default() }, 100, 1_000).await?;
    // Payment cannot write a payment of exactly this amount.
    suite.forbid("payment.payment", "amount <> 100").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let words = ["process_payment of payment has failed on StockReserved", "forbidden", "It is retried"];
    found(&participants.order, &placed, "retry_wait", &words).await?;
    let words = ["StockReserved is a dead letter of process_payment of payment", "forbidden", "after 0 replays"];
    let (explanation, dead) = found(&participants.order, &placed, "dead_letter", &words).await?;
    ensure!(kinds(&explanation) == ["dead_letter"], "{explanation:#}");
    suite.allow("payment.payment").await?;
    follow(&dead, &participants.payment).await?;
    participants.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_card_processor_has_not_answered() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    suite.break_gateway(&json!({"latency_ms": 2_000})).await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, finding) = found(&participants.order, &placed, "at_gateway", &["to charge payment"]).await?;
    ensure!(kinds(&explanation) == ["at_gateway"] && finding["since"].is_string(), "{explanation:#}");
    follow(&finding, &participants.payment).await?;
    participants.saga_becomes(&placed, "COMPLETED").await?;
    ensure!(participants.cancel(&placed).await? == 202);
    found(&participants.order, &placed, "at_gateway", &["if it was charged"]).await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    // Also for an order that was never charged.
    let unfillable = participants.place(&[("A", 2_000)], "tok_visa").await?;
    found(&participants.order, &unfillable, "at_gateway", &["if it was charged"]).await?;
    participants.saga_becomes(&unfillable, "COMPENSATED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_step_is_done_and_the_saga_is_about_to_go_on() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    participants.saga_becomes(&placed, "IN_PROGRESS").await?;
    // The moment between the commit of the step and the next read of the saga, prolonged.
    let (explanation, _) = found(&participants.order, &placed, "consumer_paused", &[]).await?;
    let event_id = explanation["waiting_for"][0]["event_id"].as_str().unwrap_or_default();
    let applied =
        format!("insert into payment.inbox (event_id, consumer) values ('{event_id}', 'payment-process_payment')");
    suite.execute(applied).await?;
    let words = ["process_payment of payment has handled StockReserved"];
    let (explanation, _) = found(&participants.order, &placed, "handled", &words).await?;
    ensure!(kinds(&explanation) == ["handled"], "{explanation:#}");
    Ok(())
}
