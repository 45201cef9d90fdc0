//! From the stream to the commit of the step.
//!
//! Not audited: what is looked at is an order in the middle of its way; most are left there.

use anyhow::ensure;
use async_nats::HeaderMap;
use contracts::{INVENTORY, ORDER, PAYMENT};
use serde_json::json;
use sqlx::Connection;
use suite_tests::{Dancers, Forged, Replica, Stage, Tuning, order_of};
use testkit::eventually;

use super::{LIMIT, awaited, explained, finding, follow, found, kinds, says};
use crate::Test;

/// Payment can write no payment of exactly 6.66.
async fn forbid(stage: &Stage) -> Test {
    stage.execute("alter table payment.payment add constraint forbidden check (amount <> 666)").await.map(drop)
}

async fn allow(stage: &Stage) -> Test {
    stage.execute("alter table payment.payment drop constraint forbidden").await.map(drop)
}

#[tokio::test]
async fn the_step_has_the_event_and_is_not_done() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    // Whoever wants the product waits for this transaction.
    let mut other = sqlx::PgConnection::connect(&stage.database.admin_url()).await?;
    let mut lock = other.begin().await?;
    sqlx::query("lock table inventory.product in exclusive mode").execute(&mut *lock).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, under_way) = found(&suite.order, &placed, "under_way").await?;
    says(&under_way, &["OrderCreated is in the stream ORDER", "reserve_stock of inventory has not finished"])?;
    ensure!(kinds(&explanation) == ["under_way"] && under_way["since"].is_string(), "{explanation:#}");
    lock.rollback().await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn an_operator_has_paused_the_consumer() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&placed, "IN_PROGRESS").await?;
    let (explanation, paused) = found(&suite.order, &placed, "consumer_paused").await?;
    says(&paused, &["operator", "process_payment of payment"])?;
    ensure!(explanation["summary"].as_str().is_some_and(|s| s.starts_with("The order has done step 1 of 3.")));
    ensure!(paused["since"].is_string(), "{paused:#}");
    ensure!(paused["remedy"]["request"] == "POST /api/admin/consumers/process_payment/resume", "{paused:#}");
    follow(&paused, &suite.payment).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
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
    let (_, waits) = found(&suite.order, &placed, "retry_wait").await?;
    says(&waits, &["payment cannot read StockReserved for process_payment", "is a StockReserved.v2", "another build"])
}

#[tokio::test]
async fn the_service_that_should_go_on_was_never_started() -> Test {
    let stage = Stage::new().await?;
    let (order, inventory) = (stage.start(ORDER).await?, stage.start(INVENTORY).await?);
    inventory.client.create_product("A", 100, 9).await?.expect(201)?;
    let placed = eventually(LIMIT, async || {
        order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201).map(Some)
    })
    .await?;
    let (explanation, down) = found(&order, &placed, "service_down").await?;
    says(&down, &["No replica of payment keeps its lease", "process_payment"])?;
    ensure!(down["since"].is_null() && down["remedy"]["what"] == "Start a replica of payment.", "{down:#}");
    ensure!(awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?).with_others(&stage).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn the_service_that_should_go_on_has_died() -> Test {
    let tuning = Tuning { relay_lease: std::time::Duration::from_secs(1), ..Tuning::default() };
    let (stage, Dancers { order, inventory, payment, .. }) = Stage::selling_with(tuning, 100, 1_000).await?;
    drop(payment);
    let placed = order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    let (_, down) = found(&order, &placed, "service_down").await?;
    says(&down, &["No replica of payment keeps its lease"])?;
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?);
    suite.saga_becomes(&placed, "COMPLETED").await?;
    let after = explained(&suite.order, &placed).await?;
    ensure!(finding(&after, "service_down").is_none(), "{after:#}");
    Ok(())
}

#[tokio::test]
async fn the_steps_circuit_breaker_is_open() -> Test {
    let resilience = "process_payment.open_for=1h,process_payment.attempts=100,process_payment.initial=10ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    stage.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = suite.place_many(8, "tok_visa").await?;
    let (_, open) = found(&suite.order, &placed[7], "breaker_open").await?;
    says(&open, &["circuit breaker of process_payment of payment is open in replica payment-"])?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    follow(&open, &suite.payment).await?;
    suite.sagas_become(&placed, "COMPLETED").await?;
    Ok(())
}

#[tokio::test]
async fn the_step_has_failed_and_tries_again() -> Test {
    let tuning = Tuning { resilience: "process_payment.attempts=7", ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    suite.sell("BEAST", 666, 10).await?;
    forbid(&stage).await?;
    let placed = suite.place(&[("BEAST", 1)], "tok_visa").await?;
    let (explanation, retry) = found(&suite.order, &placed, "retry_wait").await?;
    says(&retry, &["process_payment of payment has failed on StockReserved", "of 7 times", "forbidden"])?;
    ensure!(finding(&explanation, "under_way").is_none(), "{explanation:#}");
    allow(&stage).await?;
    suite.saga_becomes(&placed, "COMPLETED").await?;
    let after = explained(&suite.order, &placed).await?;
    ensure!(finding(&after, "retry_wait").is_none(), "what succeeded in the end is not tried again: {after:#}");
    Ok(())
}

/// A suite with an order whose payment is a dead letter.
async fn with_a_dead_letter() -> anyhow::Result<(Stage, Dancers, serde_json::Value)> {
    let tuning = Tuning { resilience: "process_payment.attempts=1", ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    suite.sell("BEAST", 666, 10).await?;
    forbid(&stage).await?;
    let placed = suite.place(&[("BEAST", 1)], "tok_visa").await?;
    Ok((stage, suite, placed))
}

#[tokio::test]
async fn the_event_is_a_dead_letter_of_the_step() -> Test {
    let (stage, suite, placed) = with_a_dead_letter().await?;
    let (explanation, dead) = found(&suite.order, &placed, "dead_letter").await?;
    says(&dead, &["StockReserved is a dead letter of process_payment of payment", "forbidden", "replayed 0 times"])?;
    ensure!(kinds(&explanation) == ["dead_letter"], "{explanation:#}");
    allow(&stage).await?;
    follow(&dead, &suite.payment).await?;
    suite.saga_becomes(&placed, "COMPLETED").await?;
    let (_, resolved) = found(&suite.order, &placed, "dead_letter").await?;
    says(&resolved, &["was a dead letter", "was applied later"])?;
    ensure!(resolved["remedy"].is_null(), "{resolved:#}");
    Ok(())
}

#[tokio::test]
async fn an_operator_has_given_the_dead_letter_up() -> Test {
    let (_stage, suite, placed) = with_a_dead_letter().await?;
    let (_, dead) = found(&suite.order, &placed, "dead_letter").await?;
    let replay = dead["remedy"]["request"].as_str().unwrap_or_default();
    let path = replay.trim_start_matches("POST ").trim_end_matches("/replay");
    discard(&suite.payment, path).await?;
    let (explanation, given_up) = found(&suite.order, &placed, "dead_letter").await?;
    says(&given_up, &["an operator gave it up: not worth it"])?;
    ensure!(given_up["remedy"].is_null() && awaited(&explanation) == ["process_payment of payment"], "{explanation:#}");
    Ok(())
}

async fn discard(payment: &Replica, path: &str) -> Test {
    let request = payment.client.request(reqwest::Method::DELETE, path).json(&json!({"reason": "not worth it"}));
    payment.client.send(request).await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn the_card_processor_has_not_answered_the_charge() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.break_gateway(&json!({"latency_ms": 2_000})).await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, asked) = found(&suite.order, &placed, "at_gateway").await?;
    says(&asked, &["Payment ", "card processor's answer is not there"])?;
    ensure!(kinds(&explanation) == ["at_gateway"] && asked["since"].is_string(), "{explanation:#}");
    follow(&asked, &suite.payment).await?;
    suite.saga_becomes(&placed, "COMPLETED").await.map(drop)
}

#[tokio::test]
async fn the_card_processor_has_not_answered_the_refund() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    stage.break_gateway(&json!({"latency_ms": 2_000})).await?;
    ensure!(suite.cancel(&placed).await? == 202);
    let (explanation, asked) = found(&suite.order, &placed, "at_gateway").await?;
    says(&asked, &["is to be given back", "card processor's answer is not there"])?;
    ensure!(awaited(&explanation).contains(&"refund_payment of payment".to_owned()), "{explanation:#}");
    suite.saga_becomes(&placed, "COMPENSATED").await.map(drop)
}

#[tokio::test]
async fn the_card_processor_has_not_said_that_an_unpaid_order_is_unpaid() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    suite.sell("RARE", 100, 1).await?;
    stage.break_gateway(&json!({"latency_ms": 2_000})).await?;
    let unfillable = suite.place(&[("RARE", 2)], "tok_visa").await?;
    let (_, asked) = found(&suite.order, &unfillable, "at_gateway").await?;
    says(&asked, &["is to be given back, if it was taken", "card processor's answer is not there"])?;
    suite.saga_becomes(&unfillable, "COMPENSATED").await.map(drop)
}

#[tokio::test]
async fn the_step_is_done_and_the_saga_goes_on_at_this_moment() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    suite.saga_becomes(&placed, "IN_PROGRESS").await?;
    // The moment between the commit of the step and the next look at the saga, made to last.
    let (explanation, _) = found(&suite.order, &placed, "consumer_paused").await?;
    let event_id: uuid::Uuid = explanation["waiting_for"][0]["event_id"].as_str().unwrap_or_default().parse()?;
    sqlx::query("insert into payment.inbox (event_id, consumer) values ($1, 'payment-process_payment')")
        .bind(event_id)
        .execute(&stage.pool)
        .await?;
    let (explanation, handled) = found(&suite.order, &placed, "handled").await?;
    says(&handled, &["process_payment of payment has handled StockReserved"])?;
    ensure!(kinds(&explanation) == ["handled"], "{explanation:#}");
    Ok(())
}
