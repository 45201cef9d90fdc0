//! Compensations that take long: what counts as an attempt, what ends a saga that was given up, and an operator's turn.

use std::time::Duration;

use anyhow::{Context, ensure};
use console::audit::Options;
use contracts::{ORDER, PAYMENT, order_fulfillment::SagaTimedOut};
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{App, Dancers, Replica, Stage, Tuning};
use testkit::eventually;
use uuid::Uuid;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);

/// The compensation's deadline passes, and order looks; more often than it would take to give up.
async fn the_deadline_passes_again_and_again(stage: &Stage, order: &Replica, saga: &Value) -> Test {
    let App::Order(app) = &order.app else { anyhow::bail!("this is not order") };
    let saga_id: Uuid = saga["saga_id"].as_str().context("no saga")?.parse()?;
    for _ in 0..7 {
        sqlx::query("update saga.saga_instance set compensation_deadline = now() - interval '1 s' where saga_id = $1")
            .bind(saga_id)
            .execute(&stage.pool)
            .await?;
        order::drive_compensation(app).await?;
    }
    Ok(())
}

async fn saga(order: &Replica, placed: &Value) -> anyhow::Result<Value> {
    order.client.get(&format!("/api/sagas/{}", placed["saga_id"].as_str().context("no saga")?)).await?.expect(200)
}

async fn due(order: &Replica, placed: &Value, services: &[&str]) -> Test {
    eventually(LIMIT, async || {
        let saga = saga(order, placed).await?;
        ensure!(saga["receipts_due"] == json!(services), "{saga:#}");
        anyhow::Ok(())
    })
    .await
}

async fn cancel(order: &Replica, placed: &Value) -> Test {
    let path = format!("/api/orders/{}/cancel", placed["order_id"].as_str().context("no order")?);
    order.client.post(&path, &json!({"reason": "too late"})).await?.expect(202).map(drop)
}

fn nothing_was_tried(saga: &Value) -> Test {
    ensure!(saga["status"] == "COMPENSATING" && saga["compensation_attempts"] == 0, "{saga:#}");
    let driven = saga["steps"].as_array().into_iter().flatten().any(|step| step["step"] == "drive_compensation");
    ensure!(!driven, "{saga:#}");
    Ok(())
}

#[suite_tests::test]
async fn no_attempt_is_counted_before_the_cancellation_is_published() -> Test {
    let (stage, suite) = Stage::selling(700, 10).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    suite.order.client.post("/api/admin/relay/pause", &json!({})).await?.expect(200)?;
    cancel(&suite.order, &placed).await?;
    the_deadline_passes_again_and_again(&stage, &suite.order, &placed).await?;
    nothing_was_tried(&saga(&suite.order, &placed).await?)?;
    suite.order.client.post("/api/admin/relay/resume", &json!({})).await?.expect(200)?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.audit().await
}

#[suite_tests::test]
async fn no_attempt_is_counted_while_a_participant_is_away() -> Test {
    let (stage, suite) = Stage::selling(700, 10).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    payment.stop().await;
    cancel(&order, &placed).await?;
    due(&order, &placed, &["payment"]).await?;
    the_deadline_passes_again_and_again(&stage, &order, &placed).await?;
    nothing_was_tried(&saga(&order, &placed).await?)?;
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?);
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    ensure!(suite.payment_of(&placed).await?.context("no payment")?["status"] == "REFUNDED");
    stage.audit().await
}

#[suite_tests::test]
async fn no_attempt_is_counted_while_the_broker_is_away() -> Test {
    let (stage, suite) = Stage::selling(700, 10).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    stage.pause(&suite.payment, "refund_payment").await?;
    cancel(&suite.order, &placed).await?;
    due(&suite.order, &placed, &["payment"]).await?;
    stage.nats.lock().await.stop().await?;
    eventually(LIMIT, async || !suite.order.app.participant().bus.is_connected()).await?;
    the_deadline_passes_again_and_again(&stage, &suite.order, &placed).await?;
    nothing_was_tried(&saga(&suite.order, &placed).await?)?;
    stage.nats.lock().await.start_again().await?;
    stage.resume(&suite.payment, "refund_payment").await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    stage.audit().await
}

/// What is lost is on its way to nobody. The order's row knows why it was cancelled, or else, where an older build has
/// cancelled it, the saga's turning point tells.
#[suite_tests::test(unaudited = "the stream has lost what its receipt tells of")]
async fn a_cancellation_that_vanished_is_published_again() -> Test {
    for hidden in [
        "update saga.saga_instance set failed_at_step = 'process_payment'",
        "update orders.customer_order set cancel_code = null",
    ] {
        let (stage, suite) = Stage::selling(700, 10).await?;
        let placed = suite.confirmed(&[("A", 1)]).await?;
        stage.pause(&suite.payment, "refund_payment").await?;
        cancel(&suite.order, &placed).await?;
        due(&suite.order, &placed, &["payment"]).await?;
        stage.execute(hidden).await?;
        stage.lose_last("events.order.OrderCancelled").await?;
        the_deadline_passes_again_and_again(&stage, &suite.order, &placed).await?;
        let driven = saga(&suite.order, &placed).await?;
        ensure!(driven["compensation_attempts"] == 1, "once, and that one waits: {driven:#}");
        stage.resume(&suite.payment, "refund_payment").await?;
        suite.saga_becomes(&placed, "COMPENSATED").await?;
        let stream = stage.jetstream().await?.get_stream("ORDER").await?;
        let again = stream.get_last_raw_message_by_subject("events.order.OrderCancelled").await?;
        let again: Value = serde_json::from_slice(&again.payload)?;
        ensure!(again["reason"] == "CUSTOMER_REQUEST" && again["detail"] == "too late", "{again:#}");
    }
    Ok(())
}

/// Sagas that were given up, because payment fails at every refund: each refund is a dead letter.
async fn stuck(orders: usize) -> anyhow::Result<(Stage, Dancers, Vec<Value>)> {
    let tuning = Tuning {
        compensation_deadline: Duration::from_millis(50),
        resilience: "refund_payment.attempts=1",
        breakers_enabled: false,
        ..Tuning::default()
    };
    let (stage, suite) = Stage::faulty(tuning, 700, 10).await?;
    suite.payment.arm(&json!({"point": "in_step", "kind": "error", "scope": {"step": "refund_payment"}})).await?;
    let mut placed = Vec::new();
    for _ in 0..orders {
        let order = suite.confirmed(&[("A", 1)]).await?;
        cancel(&suite.order, &order).await?;
        placed.push(order);
    }
    for order in &placed {
        let failed = suite.saga_becomes(order, "FAILED").await?;
        let expected = failed["receipts_due"] == json!(["payment"]) && failed["compensation_attempts"] == 5;
        ensure!(expected, "{failed:#}");
    }
    suite.payment.client.send(suite.payment.client.request(Method::DELETE, "/api/admin/faults")).await?.expect(200)?;
    Ok((stage, suite, placed))
}

/// The dead letters are what the test is about.
async fn audit(stage: &Stage) -> Test {
    stage.audit_with(Options { settle: LIMIT, allow_dead_letters: true, ..Options::default() }).await
}

async fn resume(order: &Replica, body: &Value) -> anyhow::Result<Value> {
    let request = order.client.request(Method::POST, "/api/admin/sagas/resume").header("x-actor", "ann");
    order.client.send(request.json(body)).await?.expect(200)
}

#[suite_tests::test]
async fn a_compensation_that_failed_is_resumed_by_an_operator() -> Test {
    let (stage, suite, placed) = stuck(1).await?;
    let resume = format!("/api/admin/sagas/{}/resume", placed[0]["saga_id"].as_str().context("no saga")?);
    suite.order.client.post(&resume, &json!({"reason": "mended"})).await?.expect(200)?;
    let ended = suite.saga_becomes(&placed[0], "COMPENSATED").await?;
    let resumed = ended["steps"].as_array().into_iter().flatten().any(|s| s["reason"] == "admin resumed it: mended");
    ensure!(resumed, "{ended:#}");
    ensure!(suite.order.client.post(&resume, &json!({})).await?.status == 409);
    ensure!(suite.payment_of(&placed[0]).await?.context("no payment")?["status"] == "REFUNDED");
    audit(&stage).await
}

#[suite_tests::test]
async fn the_last_receipt_ends_a_saga_that_was_given_up() -> Test {
    let (stage, suite, placed) = stuck(1).await?;
    let given_up = saga(&suite.order, &placed[0]).await?;
    let letters = suite.payment.client.get("/api/admin/dlq?step=refund_payment").await?.expect(200)?;
    let letter = letters["items"][0]["id"].as_str().context("no dead letter")?;
    suite.payment.client.post(&format!("/api/admin/dlq/{letter}/replay"), &json!({})).await?.expect(200)?;
    let ended = suite.saga_becomes(&placed[0], "COMPENSATED").await?;
    ensure!(ended["completed_at"] != given_up["completed_at"], "it ended when it was given up: {ended:#}");
    ensure!(ended["receipts_due"] == json!([]) && ended["compensation_attempts"] == 5, "{ended:#}");
    audit(&stage).await
}

#[suite_tests::test]
async fn stuck_sagas_are_resumed_in_bulk_after_a_dry_run() -> Test {
    let (stage, suite, placed) = stuck(3).await?;
    let ids: Vec<&str> = placed.iter().filter_map(|order| order["saga_id"].as_str()).collect();
    let wish = |more: Value| {
        let mut wish = json!({"filter": {"due_from": "payment"}, "reason": "the processor is back"});
        wish.as_object_mut().into_iter().for_each(|wish| wish.extend(more.as_object().cloned().unwrap_or_default()));
        wish
    };
    let told = resume(&suite.order, &wish(json!({}))).await?;
    ensure!(told == json!({"dry_run": true, "matched": 3, "resumed": 0, "saga_ids": ids}), "{told:#}");
    let others = resume(&suite.order, &json!({"filter": {"due_from": "inventory"}, "reason": "r"})).await?;
    ensure!(others["matched"] == 0, "{others:#}");
    for order in &placed {
        ensure!(saga(&suite.order, order).await?["status"] == "FAILED", "a dry run changes nothing");
    }
    let done = resume(&suite.order, &wish(json!({"dry_run": false, "limit": 2}))).await?;
    ensure!(done == json!({"dry_run": false, "matched": 3, "resumed": 2, "saga_ids": ids[..2]}), "{done:#}");
    for order in &placed[..2] {
        let ended = suite.saga_becomes(order, "COMPENSATED").await?;
        let why = "ann resumed it: the processor is back";
        ensure!(ended["steps"].as_array().into_iter().flatten().any(|step| step["reason"] == why), "{ended:#}");
    }
    ensure!(saga(&suite.order, &placed[2]).await?["status"] == "FAILED", "it was not among the oldest two");
    resume(&suite.order, &wish(json!({"dry_run": false}))).await?;
    suite.saga_becomes(&placed[2], "COMPENSATED").await?;
    for (wrong, pointer) in [
        (wish(json!({"reason": ""})), "/reason"),
        (wish(json!({"limit": 0})), "/limit"),
        (wish(json!({"filter": [null, null, null]})), "/filter"),
    ] {
        let refused = suite.order.client.post("/api/admin/sagas/resume", &wrong).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == pointer, "{refused:#}");
    }
    audit(&stage).await
}

/// Order looks once, as it starts, and not again for an hour.
#[suite_tests::test]
async fn more_overdue_sagas_than_a_batch_are_retried_in_one_round() -> Test {
    const SAGAS: i64 = 250;
    let hour = Duration::from_secs(3600);
    let tuning = Tuning { timeout_check_every: hour, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 700, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    stage.pause(&suite.order, "cancel_timed_out_order").await?;
    for _ in 0..SAGAS {
        suite.place(&[("A", 1)], "tok_visa").await?;
    }
    let in_progress = "select count(*) from saga.saga_instance where status = 'IN_PROGRESS'";
    stage.becomes(in_progress, SAGAS).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    order.stop().await;
    stage.execute("update saga.saga_instance set deadline = now()").await?;
    while payment.app.participant().timeout_detector::<SagaTimedOut>().detect_timeout().await? > 0 {}
    stage.execute("update saga.saga_instance set compensation_deadline = now()").await?;
    let order = stage.start(ORDER).await?;
    let cancelled = "select count(*) from orders.customer_order where status = 'CANCELLED'";
    stage.becomes(cancelled, SAGAS).await?;
    stage.resume(&payment, "process_payment").await?;
    stage.resume(&order, "cancel_timed_out_order").await?;
    stage.audit().await?;
    drop(inventory);
    Ok(())
}
