//! Circuit breakers with real consumers, a real broker and a real card processor; and that every override of a
//! step's policy takes effect.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT, order_fulfillment::PROCESS_PAYMENT};
use faults::{FaultPoint, FaultSpec, Faults, Kind, Scope};
use saga::Step;
use serde_json::{Value, json};
use suite_tests::{Dancers, Stage, Tuning};
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);

async fn becomes(suite: &Dancers, state: &str) -> anyhow::Result<Value> {
    eventually(LIMIT, async || {
        let breaker = suite.payment.breaker("process_payment").await?;
        ensure!(breaker["state"] == state, "the breaker is {breaker:#}");
        anyhow::Ok(Some(breaker))
    })
    .await
}

/// How often the broker has delivered anything to the step.
async fn deliveries(stage: &Stage) -> anyhow::Result<u64> {
    let stream = stage.jetstream().await?.get_stream(INVENTORY.stream()).await?;
    let info = stream.consumer_info(PROCESS_PAYMENT.consumer()).await?;
    Ok(info.delivered.consumer_sequence)
}

#[suite_tests::test]
async fn it_opens_probes_opens_again_closes_and_loses_nothing() -> Test {
    let resilience = "process_payment.open_for=3s,process_payment.attempts=20,process_payment.initial=50ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1000).await?;
    ensure!(suite.payment.breaker("process_payment").await?["state"] == "closed");
    stage.break_gateway(&json!({"error_rate": 1.0})).await?;
    let mut placed = suite.place_many(20, "tok_visa").await?;
    let opened = becomes(&suite, "open").await?;
    ensure!(opened["why"].as_str().is_some_and(|why| why.contains("failed")), "{opened:#}");
    ensure!(opened["retry_in_seconds"].as_f64().is_some_and(|s| s > 0.0 && s <= 3.0), "{opened:#}");

    // What was in hand is settled or given back first; then nothing is asked for until it is time to probe.
    let idle = async || -> anyhow::Result<u64> {
        let before = (suite.payment.breaker("process_payment").await?, deliveries(&stage).await?);
        placed_while_open(&suite).await?;
        let after = (deliveries(&stage).await?, suite.payment.breaker("process_payment").await?);
        let stayed = before.0["totals"]["opened"] == after.1["totals"]["opened"];
        ensure!(stayed && before.0["state"] == "open" && after.1["state"] == "open", "it did not stay open");
        ensure!(before.1 == after.0, "{} deliveries while it was open", after.0 - before.1);
        Ok(before.1)
    };
    eventually(LIMIT, async || idle().await.map(Some)).await?;

    // The card processor still fails, so the probes fail and it opens again.
    let first = opened["totals"]["opened"].as_u64().context("no total")?;
    eventually(LIMIT, async || {
        let breaker = suite.payment.breaker("process_payment").await?;
        ensure!(breaker["totals"]["opened"].as_u64() > Some(first), "{breaker:#}");
        anyhow::Ok(())
    })
    .await?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    becomes(&suite, "closed").await?;
    placed.extend(suite.place_many(3, "tok_visa").await?);
    suite.sagas_become(&placed, "COMPLETED").await?;
    let changes = suite.payment.client.get("/api/admin/breakers").await?.expect(200)?["changes"].clone();
    let told: Vec<_> = changes.as_array().into_iter().flatten().rev().map(|c| (&c["from"], &c["to"])).collect();
    let (closed, open, half_open) = (json!("closed"), json!("open"), json!("half-open"));
    ensure!(told.first() == Some(&(&closed, &open)) && told.last() == Some(&(&half_open, &closed)), "{changes:#}");
    ensure!(told.contains(&(&half_open, &open)) && told.contains(&(&open, &half_open)), "{changes:#}");
    ensure!(stage.number("select count(*) from payment.dead_letter").await? == 0);
    stage.audit().await
}

/// More events arrive meanwhile, and nobody takes them up.
async fn placed_while_open(suite: &Dancers) -> Test {
    let order = suite.place(&[("A", 1)], "tok_visa").await?;
    let path = format!("/api/reservations/{}", order["order_id"].as_str().unwrap_or_default());
    eventually(LIMIT, async || suite.inventory.client.get(&path).await.is_ok_and(|r| r.body["status"] == "RESERVED"))
        .await
}

#[suite_tests::test]
async fn refusals_move_no_breaker() -> Test {
    let (stage, suite) = Stage::selling(100, 1000).await?;
    suite.sell("SCARCE", 100, 1).await?;
    let mut refused = Vec::new();
    for n in 0..30 {
        let (line, token) = if n % 2 == 0 { (("A", 1), "tok_declined") } else { (("SCARCE", 2), "tok_visa") };
        refused.push(suite.place(&[line], token).await?);
    }
    suite.sagas_become(&refused, "COMPENSATED").await?;
    for (replica, step) in [(&suite.payment, "process_payment"), (&suite.inventory, "reserve_stock")] {
        let breaker = replica.breaker(step).await?;
        ensure!(breaker["state"] == "closed" && breaker["failures"] == 0, "{breaker:#}");
        ensure!(breaker["totals"]["ignored"].as_u64() >= Some(15), "{breaker:#}");
    }
    ensure!(suite.payment.breaker("process_payment").await?["calls"] == 0, "a refusal was counted as a call");
    stage.nothing_was_counted().await?;
    stage.audit().await
}

#[suite_tests::test]
async fn an_operator_can_close_it_and_the_kill_switch_takes_it_away() -> Test {
    let resilience = "process_payment.open_for=1h,process_payment.attempts=30,process_payment.initial=10ms";
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (mut stage, suite) = Stage::selling_with(tuning, 100, 1000).await?;
    let faults = json!({"error_rate": 1.0});
    stage.break_gateway(&faults).await?;
    let placed = suite.place_many(10, "tok_visa").await?;
    becomes(&suite, "open").await?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    let reset = suite.payment.client.post("/api/admin/breakers/process_payment/reset", &json!({})).await?;
    ensure!(reset.expect(200)?["items"][0]["state"] == "closed");
    ensure!(suite.payment.client.post("/api/admin/breakers/nope/reset", &json!({})).await?.status == 404);
    suite.sagas_become(&placed, "COMPLETED").await?;

    let Dancers { order, inventory, payment, .. } = suite;
    payment.stop().await;
    stage.tuning.breakers_enabled = false;
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?);
    stage.break_gateway(&faults).await?;
    let placed = suite.place_many(10, "tok_visa").await?;
    let tried = "select count(*) from payment.delivery_attempt where attempts > 3";
    eventually(LIMIT, async || stage.number(tried).await.is_ok_and(|n| n >= 5)).await?;
    let breaker = suite.payment.breaker("process_payment").await?;
    ensure!(breaker["state"] == "closed" && breaker["calls"] == 0, "{breaker:#}");
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    suite.sagas_become(&placed, "COMPLETED").await?;
    stage.audit().await
}

/// The policy of process_payment, as a payment service with these overrides shows it.
async fn policy_with(resilience: &'static str) -> anyhow::Result<Value> {
    let (_stage, payment) = Stage::alone_with(Tuning { resilience, ..Tuning::default() }, PAYMENT).await?;
    Ok(payment.breaker("process_payment").await?["policy"].clone())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn overrides_of_a_breaker_are_what_operators_see() -> Test {
    let row = PROCESS_PAYMENT.breaker;
    let shown = policy_with("").await?;
    ensure!(
        shown["failure_rate"] == row.failure_rate && shown["open_for_seconds"] == row.open_for.as_secs_f64(),
        "{shown}"
    );
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

/// Fails every attempt of `step` in this replica, and returns how many attempts the event was given.
async fn attempts_of(resilience: &'static str, step: &Step) -> anyhow::Result<(i64, Duration)> {
    let tuning = Tuning { resilience, ..Tuning::default() };
    let (stage, suite) = Stage::faulty(tuning, 100, 10).await?;
    let fault = FaultSpec::new(FaultPoint::InStep, Kind::Error).scope(Scope::default().step(step.name));
    suite.inventory.faults.arm(fault, "test")?;
    let begun = tokio::time::Instant::now();
    suite.place(&[("A", 1)], "tok_visa").await?;
    let letters = "select coalesce(max(attempts), 0)::bigint from inventory.dead_letter";
    let attempts = eventually(LIMIT, async || match stage.number(letters).await? {
        0 => anyhow::bail!("no dead letter yet"),
        attempts => anyhow::Ok(Some(attempts)),
    })
    .await?;
    Ok((attempts, begun.elapsed()))
}

#[suite_tests::test(unaudited = "the dead letter is left")]
async fn overrides_of_a_retry_take_effect() -> Test {
    let step = &contracts::order_fulfillment::RESERVE_STOCK.step;
    let quick = "reserve_stock.initial=1ms,reserve_stock.open_for=1ms";
    let (attempts, took) = attempts_of(quick, step).await?;
    ensure!(attempts == i64::from(step.retry.attempts), "{attempts} attempts, the row says {}", step.retry.attempts);
    ensure!(took < Duration::from_secs(10));
    let (attempts, _) =
        attempts_of("reserve_stock.initial=1ms,reserve_stock.attempts=7,reserve_stock.open_for=1ms", step).await?;
    ensure!(attempts == 7, "{attempts} attempts");
    // 500 ms, 5 s, 50 s ... but for the bound.
    let bounded =
        "reserve_stock.multiplier=10,reserve_stock.max=2ms,reserve_stock.attempts=6,reserve_stock.open_for=1ms";
    let (attempts, took) = attempts_of(bounded, step).await?;
    ensure!(attempts == 6 && took < Duration::from_secs(10), "{attempts} attempts in {took:?}");
    Ok(())
}

#[suite_tests::test]
async fn an_override_of_the_time_limit_takes_effect() -> Test {
    let tuning = Tuning { resilience: "reserve_stock.time_limit=200ms,reserve_stock.initial=1ms", ..Tuning::default() };
    let (stage, suite) = Stage::faulty(tuning, 100, 10).await?;
    let slow = FaultSpec::new(FaultPoint::InStep, Kind::Latency).latency(30_000).first(1);
    suite.inventory.faults.arm(slow.scope(Scope::default().step("reserve_stock")), "test")?;
    suite.confirmed(&[("A", 1)]).await?;
    let cut = "select count(*) from inventory.delivery_attempt where last_error like '%longer than its limit%'";
    ensure!(stage.number(cut).await? == 1, "the step was not cut off");
    stage.audit().await
}

/// Between payment and the broker: cuts the connection once, when it sees a request for probes.
async fn cut_at_the_first_probe(to: String, cut: Arc<AtomicBool>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("nats://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (to, cut) = (to.clone(), Arc::clone(&cut));
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(&to).await else { return };
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let mut buffer = vec![0; 65_536];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    let asks_for_probes = String::from_utf8_lossy(&buffer[..read]).contains("\"no_wait\":true");
                    if asks_for_probes && !cut.swap(true, Ordering::SeqCst) {
                        break;
                    }
                    if to_server.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
                answers.abort();
            });
        }
    });
    Ok(url)
}

#[suite_tests::test]
async fn a_connection_cut_while_probing_holds_nothing_up() -> Test {
    let resilience = "process_payment.open_for=300ms,process_payment.attempts=50,process_payment.initial=50ms";
    let (mut stage, inventory) = Stage::alone_with(Tuning { resilience, ..Tuning::default() }, INVENTORY).await?;
    let order = stage.start_with(ORDER, Faults::none(), &inventory.url).await?;
    let cut = Arc::new(AtomicBool::new(false));
    let direct = stage.nats_url.clone();
    stage.nats_url = cut_at_the_first_probe(direct.trim_start_matches("nats://").to_owned(), cut.clone()).await?;
    let payment = stage.start(PAYMENT).await?;
    stage.nats_url = direct;
    let suite = Dancers::of(order, inventory, payment).with_others(&stage).await?;
    suite.sell("A", 100, 1000).await?;
    stage.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = suite.place_many(8, "tok_visa").await?;
    eventually(LIMIT, async || cut.load(Ordering::SeqCst)).await?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    suite.sagas_become(&placed, "COMPLETED").await?;
    stage.audit().await
}
