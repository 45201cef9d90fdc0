//! Circuit breakers with real consumers, a real broker and a real card processor; and every override of a step's policy.

use contracts::order_fulfillment::PROCESS_PAYMENT;
use faults::{FaultPoint, FaultSpec, Kind, Scope};
use saga::Step;
use testkit::{Manner, Proxy};

use crate::prelude::*;

async fn becomes(participants: &Participants, state: &str) -> anyhow::Result<Value> {
    participants.payment.breaker_until("process_payment", |breaker| breaker["state"] == state).await
}

/// The number of deliveries of the broker to the step.
async fn deliveries(suite: &TestSuite) -> anyhow::Result<u64> {
    let stream = suite.jetstream().await?.get_stream(INVENTORY.stream()).await?;
    let info = stream.consumer_info(PROCESS_PAYMENT.consumer()).await?;
    Ok(info.delivered.consumer_sequence)
}

#[suite_tests::test]
async fn a_breaker_opens_probes_reopens_closes_and_loses_nothing() -> Test {
    let resilience = "process_payment.open_for=3s,process_payment.attempts=20,process_payment.initial=50ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    ensure!(participants.payment.breaker("process_payment").await?["state"] == "closed");
    suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    let mut placed = participants.place_many(20, "tok_visa").await?;
    let opened = becomes(&participants, "open").await?;
    ensure!(opened["why"].as_str().is_some_and(|why| why.contains("failed")), "{opened:#}");
    ensure!(opened["retry_in_seconds"].as_f64().is_some_and(|s| s > 0.0 && s <= 3.0), "{opened:#}");

    // Deliveries in hand are applied or returned first; then no more are fetched until the next probe.
    let idle = async || -> anyhow::Result<u64> {
        let before = (participants.payment.breaker("process_payment").await?, deliveries(&suite).await?);
        placed_while_open(&participants).await?;
        let after = (deliveries(&suite).await?, participants.payment.breaker("process_payment").await?);
        let stayed = before.0["totals"]["opened"] == after.1["totals"]["opened"];
        ensure!(stayed && before.0["state"] == "open" && after.1["state"] == "open", "it did not stay open");
        ensure!(before.1 == after.0, "{} deliveries while it was open", after.0 - before.1);
        Ok(before.1)
    };
    eventually(async || idle().await.map(Some)).await?;

    // The card processor still fails, so the probes fail and it opens again.
    let first = opened["totals"]["opened"].as_u64();
    let again = |breaker: &Value| breaker["totals"]["opened"].as_u64() > first;
    participants.payment.breaker_until("process_payment", again).await?;
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    becomes(&participants, "closed").await?;
    placed.extend(participants.place_many(3, "tok_visa").await?);
    participants.sagas_become(&placed, "COMPLETED").await?;
    let changes = participants.payment.client.get("/api/admin/breakers").await?.expect(200)?["changes"].clone();
    let transitions: Vec<_> = changes.as_array().into_iter().flatten().rev().map(|c| (&c["from"], &c["to"])).collect();
    let (closed, open, half_open) = (json!("closed"), json!("open"), json!("half-open"));
    let ends = (transitions.first(), transitions.last());
    ensure!(ends == (Some(&(&closed, &open)), Some(&(&half_open, &closed))), "{changes:#}");
    ensure!(transitions.contains(&(&half_open, &open)) && transitions.contains(&(&open, &half_open)), "{changes:#}");
    ensure!(suite.number("select count(*) from payment.dead_letter").await? == 0);
    suite.audit().await
}

/// More events arrive while the breaker is open, and none is fetched.
async fn placed_while_open(participants: &Participants) -> Test {
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    let path = format!("/api/reservations/{}", order["order_id"].as_str().unwrap_or_default());
    participants.inventory.client.until(&path, |found| found["status"] == "RESERVED").await.map(drop)
}

#[suite_tests::test]
async fn refusals_leave_the_breaker_closed() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1000).await?;
    participants.sell("SCARCE", 100, 1).await?;
    let mut refused = Vec::new();
    for n in 0..30 {
        let (line, token) = if n % 2 == 0 { (("A", 1), "tok_declined") } else { (("SCARCE", 2), "tok_visa") };
        refused.push(participants.place(&[line], token).await?);
    }
    participants.sagas_become(&refused, "COMPENSATED").await?;
    for (replica, step) in [(&participants.payment, "process_payment"), (&participants.inventory, "reserve_stock")] {
        let breaker = replica.breaker(step).await?;
        ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
        ensure!(breaker["totals"]["ignored"].as_u64() >= Some(15), "{breaker:#}");
    }
    ensure!(participants.payment.breaker("process_payment").await?["calls"] == 0, "a refusal was counted as a call");
    suite.nothing_was_counted().await?;
    suite.audit().await
}

#[suite_tests::test]
async fn operators_can_close_and_disable_breakers() -> Test {
    let resilience = "process_payment.open_for=1h,process_payment.attempts=30,process_payment.initial=10ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (mut suite, mut participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    let faults = json!({"error_rate": 1.0});
    suite.break_gateway(&faults).await?;
    let placed = participants.place_many(10, "tok_visa").await?;
    becomes(&participants, "open").await?;
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    let reset = participants.payment.client.act("/api/admin/breakers/process_payment/reset").await?;
    ensure!(reset["items"][0]["state"] == "closed");
    ensure!(participants.payment.client.post("/api/admin/breakers/nope/reset", &json!({})).await?.status == 404);
    participants.sagas_become(&placed, "COMPLETED").await?;

    participants.payment.stop().await;
    suite.tuning.breakers_enabled = false;
    participants.payment = suite.start(PAYMENT).await?;
    suite.break_gateway(&faults).await?;
    let placed = participants.place_many(10, "tok_visa").await?;
    let tried = "select count(*) from payment.delivery_attempt where attempts > 3";
    eventually(async || suite.number(tried).await.is_ok_and(|n| n >= 5)).await?;
    let breaker = participants.payment.breaker("process_payment").await?;
    ensure!(breaker["state"] == "closed" && breaker["calls"] == 0, "{breaker:#}");
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    participants.sagas_become(&placed, "COMPLETED").await?;
    suite.audit().await
}

/// The policy of process_payment, as a payment service with these overrides reports it.
async fn policy_with(resilience: &'static str) -> anyhow::Result<Value> {
    let (_suite, payment) = TestSuite::alone_with(Tuning { resilience, ..Tuning::default() }, PAYMENT).await?;
    Ok(payment.breaker("process_payment").await?["policy"].clone())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn breaker_overrides_are_visible_to_operators() -> Test {
    let row = PROCESS_PAYMENT.breaker;
    let shown = policy_with("").await?;
    let as_in_table = shown["failure_rate"] == row.failure_rate;
    ensure!(as_in_table && shown["open_for_seconds"] == row.open_for.as_secs_f64(), "{shown}");
    let shown = policy_with(
        "process_payment.window=4,process_payment.min_calls=2,process_payment.failure_rate=0.9,\
         process_payment.open_for=7s,process_payment.half_open_probes=1",
    )
    .await?;
    let expected =
        json!({"window": 4, "min_calls": 2, "failure_rate": 0.9, "open_for_seconds": 7.0, "half_open_probes": 1});
    ensure!(shown == expected, "{shown}");
    let refused = policy_with("proces_payment.window=4").await.err().context("a misspelt step was accepted")?;
    ensure!(format!("{refused:#}").contains("proces_payment"), "{refused:#}");
    Ok(())
}

/// Fails every attempt of `step` in this replica, and returns how many attempts the event got.
async fn attempts_of(resilience: &'static str, step: &Step) -> anyhow::Result<(i64, Duration)> {
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (_suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    let fault = FaultSpec::new(FaultPoint::InStep, Kind::Error).scope(Scope::default().step(step.name));
    participants.inventory.faults.arm(fault, "test")?;
    let begun = tokio::time::Instant::now();
    participants.place(&[("A", 1)], "tok_visa").await?;
    let letter = participants.inventory.client.until_items("/api/admin/dlq", 1).await?.remove(0);
    Ok((letter["attempts"].as_i64().context("no attempts")?, begun.elapsed()))
}

#[suite_tests::test(unaudited = "the dead letter is left")]
async fn retry_overrides_take_effect() -> Test {
    let step = &contracts::order_fulfillment::RESERVE_STOCK.step;
    for (overrides, expected) in [
        ("reserve_stock.initial=1ms,reserve_stock.open_for=1ms", i64::from(step.retry.attempts)),
        ("reserve_stock.initial=1ms,reserve_stock.attempts=7,reserve_stock.open_for=1ms", 7),
        // 500 ms, 5 s, 50 s ... up to the bound.
        ("reserve_stock.multiplier=10,reserve_stock.max=2ms,reserve_stock.attempts=6,reserve_stock.open_for=1ms", 6),
    ] {
        let (attempts, took) = attempts_of(overrides, step).await?;
        ensure!(attempts == expected && took < Duration::from_secs(10), "{overrides}: {attempts} in {took:?}");
    }
    Ok(())
}

#[suite_tests::test]
async fn timeout_overrides_take_effect() -> Test {
    // Many attempts: a busy machine may need longer than the limit for an undisturbed one, too.
    let resilience = "reserve_stock.time_limit=1s,reserve_stock.initial=1ms,reserve_stock.attempts=50";
    let (suite, participants) = TestSuite::faulty(Tuning { resilience, ..Tuning::default() }, 100, 10).await?;
    let slow = FaultSpec::new(FaultPoint::InStep, Kind::Latency).latency(30_000).first(1);
    participants.inventory.faults.arm(slow.scope(Scope::default().step("reserve_stock")), "test")?;
    participants.confirmed(&[("A", 1)]).await?;
    let cut = "select count(*) from inventory.delivery_attempt where last_error like '%exceeded its time limit%'";
    ensure!(suite.number(cut).await? >= 1, "the step was not cut off");
    suite.audit().await
}

#[suite_tests::test]
async fn a_connection_cut_while_probing_blocks_nothing() -> Test {
    let resilience = "process_payment.open_for=300ms,process_payment.attempts=50,process_payment.initial=50ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (mut suite, mut participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    participants.payment.stop().await;
    let direct = suite.nats_url.clone();
    let (_, port) = direct.rsplit_once(':').context("a URL without a port")?;
    let link = Proxy::start(port.parse()?).await?;
    suite.nats_url = format!("nats://127.0.0.1:{}", link.port());
    participants.payment = suite.start(PAYMENT).await?;
    suite.nats_url = direct;
    suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    let connected = link.clients();
    link.behave(Manner::CutBy("\"no_wait\":true"));
    let placed = participants.place_many(8, "tok_visa").await?;
    eventually(async || link.clients() > connected).await?;
    link.behave(Manner::Pass);
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    participants.sagas_become(&placed, "COMPLETED").await?;
    suite.audit().await
}
