//! Slow compensations: what counts as an attempt, what completes a saga that was given up, and what an operator can do.

use console::audit::Options;
use contracts::order_fulfillment::SagaTimedOut;

use crate::prelude::*;

/// Lets the compensation's deadline pass, more often than order needs to give up.
async fn the_deadline_passes_again_and_again(suite: &TestSuite, order: &Replica) -> Test {
    let App::Order(app) = &order.app else { anyhow::bail!("this is not order") };
    for _ in 0..7 {
        suite.execute("update saga.saga_instance set compensation_deadline = now() - interval '1 s'").await?;
        order::drive_compensation(app).await?;
    }
    Ok(())
}

/// The same, and no attempt is counted.
async fn nothing_is_tried(suite: &TestSuite, order: &Replica, placed: &Value) -> Test {
    the_deadline_passes_again_and_again(suite, order).await?;
    let saga = order.client.saga(placed).await?;
    ensure!(saga["status"] == "COMPENSATING" && saga["compensation_attempts"] == 0, "{saga:#}");
    let driven = saga["steps"].as_array().into_iter().flatten().any(|step| step["step"] == "drive_compensation");
    ensure!(!driven, "{saga:#}");
    Ok(())
}

async fn cancel(order: &Replica, placed: &Value) -> Test {
    let path = format!("/api/orders/{}/cancel", placed["order_id"].as_str().context("no order")?);
    order.client.post(&path, &json!({"reason": "too late"})).await?.expect(202).map(drop)
}

/// The same, until only payment has not confirmed its undo.
async fn cancel_until_payment_is_due(order: &Replica, placed: &Value) -> Test {
    cancel(order, placed).await?;
    let path = format!("/api/sagas/{}", placed["saga_id"].as_str().context("no saga")?);
    order.client.until(&path, |saga| saga["receipts_due"] == json!(["payment"])).await.map(drop)
}

#[suite_tests::test]
async fn no_attempt_is_counted_before_the_cancellation_is_published() -> Test {
    let (suite, participants) = TestSuite::selling(700, 10).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    cancel(&participants.order, &placed).await?;
    nothing_is_tried(&suite, &participants.order, &placed).await?;
    participants.order.client.act("/api/admin/relay/resume").await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}

#[suite_tests::test]
async fn no_attempt_is_counted_while_a_participant_is_down() -> Test {
    let (suite, mut participants) = TestSuite::selling(700, 10).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    participants.payment.stop().await;
    cancel_until_payment_is_due(&participants.order, &placed).await?;
    nothing_is_tried(&suite, &participants.order, &placed).await?;
    participants.payment = suite.start(PAYMENT).await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    ensure!(participants.payment_of(&placed).await?.context("no payment")?["status"] == "REFUNDED");
    suite.audit().await
}

#[suite_tests::test]
async fn no_attempt_is_counted_while_the_broker_is_down() -> Test {
    let (suite, participants) = TestSuite::selling(700, 10).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    suite.pause(&participants.payment, "refund_payment").await?;
    cancel_until_payment_is_due(&participants.order, &placed).await?;
    suite.nats.lock().await.stop().await?;
    eventually(async || !participants.order.app.participant().bus.is_connected()).await?;
    nothing_is_tried(&suite, &participants.order, &placed).await?;
    suite.nats.lock().await.start_again().await?;
    suite.resume(&participants.payment, "refund_payment").await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}

/// A lost event is not in flight. The order's row has the reason of the cancellation; where an older build has cancelled the
/// order, the saga's turning point has it.
#[suite_tests::test(unaudited = "the stream has lost an acknowledged event")]
async fn a_lost_cancellation_is_published_again() -> Test {
    for hidden in [
        "update saga.saga_instance set failed_at_step = 'process_payment'",
        "update orders.customer_order set cancel_code = null",
    ] {
        let (suite, participants) = TestSuite::selling(700, 10).await?;
        let placed = participants.confirmed(&[("A", 1)]).await?;
        suite.pause(&participants.payment, "refund_payment").await?;
        cancel_until_payment_is_due(&participants.order, &placed).await?;
        suite.execute(hidden).await?;
        suite.lose_last("events.order.OrderCancelled").await?;
        the_deadline_passes_again_and_again(&suite, &participants.order).await?;
        let driven = participants.saga(&placed).await?;
        ensure!(driven["compensation_attempts"] == 1, "once, and that one waits: {driven:#}");
        suite.resume(&participants.payment, "refund_payment").await?;
        participants.saga_becomes(&placed, "COMPENSATED").await?;
        let stream = suite.jetstream().await?.get_stream("ORDER").await?;
        let again = stream.get_last_raw_message_by_subject("events.order.OrderCancelled").await?;
        let again: Value = serde_json::from_slice(&again.payload)?;
        ensure!(again["reason"] == "CUSTOMER_REQUEST" && again["detail"] == "too late", "{again:#}");
    }
    Ok(())
}

/// Sagas that were given up, because payment fails at every refund: each refund is a dead letter.
async fn stuck(orders: usize) -> anyhow::Result<(TestSuite, Participants, Vec<Value>)> {
    let tuning = Tuning {
        compensation_deadline: Duration::from_millis(50),
        resilience: "refund_payment.attempts=1",
        breakers_enabled: false,
        ..Tuning::default()
    };
    let (suite, participants) = TestSuite::faulty(tuning, 700, 10).await?;
    let fault = json!({"point": "in_step", "kind": "error", "scope": {"step": "refund_payment"}});
    participants.payment.arm(&fault).await?;
    let mut placed = Vec::new();
    for _ in 0..orders {
        let order = participants.confirmed(&[("A", 1)]).await?;
        cancel(&participants.order, &order).await?;
        placed.push(order);
    }
    for order in &placed {
        let failed = participants.saga_becomes(order, "FAILED").await?;
        let expected = failed["receipts_due"] == json!(["payment"]) && failed["compensation_attempts"] == 5;
        ensure!(expected, "{failed:#}");
    }
    participants.payment.client.delete("/api/admin/faults", &json!({})).await?.expect(200)?;
    Ok((suite, participants, placed))
}

/// Discards the dead letters, which the audit would report.
async fn audit(suite: &TestSuite) -> Test {
    suite.audit_with(Options { settle: LIMIT, allow_dead_letters: true, ..Options::default() }).await
}

async fn resume(order: &Replica, body: &Value) -> anyhow::Result<Value> {
    let request = order.client.request(Method::POST, "/api/admin/sagas/resume").header("x-actor", "ann");
    order.client.send(request.json(body)).await?.expect(200)
}

#[suite_tests::test]
async fn a_failed_compensation_is_resumed_by_an_operator() -> Test {
    let (suite, participants, placed) = stuck(1).await?;
    let resume = format!("/api/admin/sagas/{}/resume", placed[0]["saga_id"].as_str().context("no saga")?);
    participants.order.client.post(&resume, &json!({"reason": "repaired"})).await?.expect(200)?;
    let ended = participants.saga_becomes(&placed[0], "COMPENSATED").await?;
    let resumed = ended["steps"].as_array().into_iter().flatten().any(|s| s["reason"] == "admin resumed it: repaired");
    ensure!(resumed, "{ended:#}");
    ensure!(participants.order.client.post(&resume, &json!({})).await?.status == 409);
    ensure!(participants.payment_of(&placed[0]).await?.context("no payment")?["status"] == "REFUNDED");
    audit(&suite).await
}

#[suite_tests::test]
async fn the_last_confirmation_ends_a_failed_saga() -> Test {
    let (suite, participants, placed) = stuck(1).await?;
    let given_up = participants.saga(&placed[0]).await?;
    let letters = participants.payment.client.items("/api/admin/dlq?step=refund_payment").await?;
    let letter = letters[0]["id"].as_str().context("no dead letter")?;
    participants.payment.client.act(&format!("/api/admin/dlq/{letter}/replay")).await?;
    let ended = participants.saga_becomes(&placed[0], "COMPENSATED").await?;
    ensure!(ended["completed_at"] != given_up["completed_at"], "it ended when it was given up: {ended:#}");
    ensure!(ended["receipts_due"] == json!([]) && ended["compensation_attempts"] == 5, "{ended:#}");
    audit(&suite).await
}

#[suite_tests::test]
async fn stuck_sagas_are_resumed_in_bulk_after_a_dry_run() -> Test {
    let (suite, participants, placed) = stuck(3).await?;
    let ids: Vec<&str> = placed.iter().filter_map(|order| order["saga_id"].as_str()).collect();
    let request = |more: Value| {
        let mut request = json!({"filter": {"due_from": "payment"}, "reason": "the processor is back"});
        request
            .as_object_mut()
            .into_iter()
            .for_each(|request| request.extend(more.as_object().cloned().unwrap_or_default()));
        request
    };
    let answer = resume(&participants.order, &request(json!({}))).await?;
    ensure!(answer == json!({"dry_run": true, "matched": 3, "resumed": 0, "saga_ids": ids}), "{answer:#}");
    let others = resume(&participants.order, &json!({"filter": {"due_from": "inventory"}, "reason": "r"})).await?;
    ensure!(others["matched"] == 0, "{others:#}");
    for order in &placed {
        ensure!(participants.saga(order).await?["status"] == "FAILED", "a dry run changes nothing");
    }
    let done = resume(&participants.order, &request(json!({"dry_run": false, "limit": 2}))).await?;
    ensure!(done == json!({"dry_run": false, "matched": 3, "resumed": 2, "saga_ids": ids[..2]}), "{done:#}");
    for order in &placed[..2] {
        let ended = participants.saga_becomes(order, "COMPENSATED").await?;
        let why = "ann resumed it: the processor is back";
        ensure!(ended["steps"].as_array().into_iter().flatten().any(|step| step["reason"] == why), "{ended:#}");
    }
    ensure!(participants.saga(&placed[2]).await?["status"] == "FAILED", "it was not among the oldest two");
    resume(&participants.order, &request(json!({"dry_run": false}))).await?;
    participants.saga_becomes(&placed[2], "COMPENSATED").await?;
    for (wrong, pointer) in [
        (request(json!({"reason": ""})), "/reason"),
        (request(json!({"limit": 0})), "/limit"),
        (request(json!({"filter": [null, null, null]})), "/filter"),
    ] {
        let refused = participants.order.client.post("/api/admin/sagas/resume", &wrong).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == pointer, "{refused:#}");
    }
    audit(&suite).await
}

/// Order checks once at its start, and then not for an hour.
#[suite_tests::test]
async fn more_overdue_sagas_than_a_batch_are_retried_in_one_round() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (suite, mut participants) = TestSuite::selling_with(tuning, 700, 1_000).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    suite.pause(&participants.order, "cancel_timed_out_order").await?;
    participants.place_many(250, "tok_visa").await?;
    suite.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", 250).await?;
    participants.order.stop().await;
    suite.execute("update saga.saga_instance set deadline = now()").await?;
    while participants.payment.app.participant().timeout_detector::<SagaTimedOut>().detect_timeout().await? > 0 {}
    suite.execute("update saga.saga_instance set compensation_deadline = now()").await?;
    participants.order = suite.start(ORDER).await?;
    suite.becomes("select count(*) from orders.customer_order where status = 'CANCELLED'", 250).await?;
    suite.resume(&participants.payment, "process_payment").await?;
    suite.resume(&participants.order, "cancel_timed_out_order").await?;
    suite.audit().await
}
