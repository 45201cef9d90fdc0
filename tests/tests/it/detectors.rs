//! Timeout detectors race with successes, with cancellations and with each other.

use contracts::{OrderId, order_fulfillment::SagaTimedOut};

use crate::prelude::*;

#[suite_tests::test(unaudited = "the payments are forged. The detector never runs by itself here: the test fires it")]
async fn a_timeout_racing_a_success_has_one_outcome() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (suite, mut participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    participants.payment.stop().await;
    let placed = participants.order.client.order_many(200, "tok_visa").await?;
    in_progress(&suite, 200).await?;
    let forged: Vec<Forged> = placed.iter().map(paid).collect();
    // Ten at a time, so that the two really race.
    let jetstream = suite.jetstream().await?;
    let order = participants.order.app.participant();
    let detector = saga_store::timeout::Detector { batch: 10, ..order.timeout_detector::<SagaTimedOut>() };
    for (round, events) in forged.chunks(10).enumerate() {
        let sagas: Vec<Uuid> = events.iter().map(|e| e.saga_id).collect();
        let due = sqlx::query("update saga.saga_instance set deadline = now() where saga_id = any($1)").bind(&sagas);
        due.execute(&suite.pool).await?;
        // Every second time the detector waits for the first success, so that both orders occur.
        let first_success = async || {
            let sql = "select count(*) from saga.saga_instance where status = 'COMPLETED' and saga_id = any($1)";
            let done: i64 = sqlx::query_scalar(sql).bind(&sagas).fetch_one(&suite.pool).await?;
            anyhow::Ok(done > 0)
        };
        let detect = async {
            if round.is_multiple_of(2) {
                eventually(first_success).await?;
            }
            anyhow::Ok(detector.detect_timeout().await?)
        };
        let succeed = futures_util::future::try_join_all(events.iter().map(|e| suite.publish_to(&jetstream, e)));
        tokio::try_join!(detect, succeed)?;
    }
    while detector.detect_timeout().await? > 0 {}
    participants.payment = suite.start(PAYMENT).await?;
    suite.all_ended().await?;
    let disagreeing = "select count(*) from saga.saga_instance s join orders.customer_order o using (saga_id)
        where (s.status = 'COMPLETED') <> (o.status = 'CONFIRMED')";
    ensure!(suite.number(disagreeing).await? == 0, "orders and sagas disagree");
    let held = participants.product("A").await?["reserved"].as_i64();
    let confirmed = suite.number(CONFIRMED).await?;
    ensure!(held == Some(confirmed), "{held:?} units are held for {confirmed} orders");
    ensure!((1..200).contains(&confirmed), "{confirmed} of 200 were confirmed: the two have never met");
    Ok(())
}

#[suite_tests::test]
async fn two_detectors_time_out_each_saga_once() -> Test {
    let tuning =
        Tuning { timeout_check_every: Duration::from_secs(3600), timeout_detector_enabled: false, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    let Participants { order, inventory, payment, .. } = participants;
    payment.stop().await;
    order.client.order_many(150, "tok_visa").await?;
    in_progress(&suite, 150).await?;
    let second = suite.start(ORDER).await?;
    suite.execute("update saga.saga_instance set deadline = now()").await?;
    let detectors = [&order, &inventory, &second].map(|r| r.app.participant().timeout_detector::<SagaTimedOut>());
    let runs = detectors.iter().map(|detector| async move {
        let mut found = 0;
        while let Ok(n @ 1..) = detector.detect_timeout().await {
            found += n;
        }
        found
    });
    let found: i64 = futures_util::future::join_all(runs).await.into_iter().sum();
    ensure!(found == 150, "{found} timeouts were detected");
    let published =
        "select count(*) from (select saga_id from orders.outbox_published where event_type = 'SagaTimedOut.v1'
        union all select saga_id from inventory.outbox_published where event_type = 'SagaTimedOut.v1') t";
    suite.becomes(published, 150).await?;
    let _payment = suite.start(PAYMENT).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn without_auto_compensate_an_operator_times_sagas_out() -> Test {
    let metrics_every = Duration::from_millis(100);
    let tuning = Tuning { auto_compensate: false, metrics_every, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    let Participants { order, inventory, payment, .. } = &participants;
    suite.pause(payment, "process_payment").await?;
    let late = participants.place(&[("A", 1)], "tok_visa").await?;
    in_progress(&suite, 1).await?;
    suite.execute("update saga.saga_instance set deadline = now()").await?;
    let shown = async |name: &str| {
        let scrape = Scrape::of(&order.client).await?;
        scrape.sum(name, &[]).with_context(|| format!("order does not show {name}"))
    };
    eventually(async || shown("saga_overdue").await.is_ok_and(|overdue| overdue == 1.0)).await?;
    let checks = shown("timeout_check_duration_seconds_count").await?;
    eventually(async || shown("timeout_check_duration_seconds_count").await.is_ok_and(|now| now > checks + 1.0))
        .await?;
    ensure!(participants.saga(&late).await?["status"] == "IN_PROGRESS", "it was timed out by itself");
    suite.resume(payment, "process_payment").await?;
    participants.saga_becomes(&late, "COMPLETED").await?;

    suite.pause(payment, "process_payment").await?;
    let placed = participants.place_many(3, "tok_visa").await?;
    in_progress(&suite, 3).await?;
    suite.execute("update saga.saga_instance set deadline = now() where status = 'IN_PROGRESS'").await?;
    for found in [3, 0] {
        let checked = inventory.client.act("/api/admin/timeouts/check").await?;
        ensure!(checked["timed_out"] == found, "{checked}");
    }
    suite.resume(payment, "process_payment").await?;
    participants.sagas_become(&placed, "COMPENSATED").await?;
    eventually(async || shown("saga_overdue").await.is_ok_and(|overdue| overdue == 0.0)).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_detector_that_is_switched_off_checks_only_on_request() -> Test {
    let running = async |replica: &Replica| {
        let scrape = Scrape::of(&replica.client).await?;
        scrape.sum("timeout_detector_running", &[]).context("it is not shown whether the detector runs")
    };
    let (mut suite, participants) = TestSuite::selling(100, 10).await?;
    let Participants { order, inventory, payment, .. } = participants;
    eventually(async || running(&order).await.is_ok_and(|running| running == 1.0)).await?;
    for replica in [order, inventory, payment] {
        replica.stop().await;
    }
    suite.tuning.timeout_detector_enabled = false;
    let participants = suite.participants().await?;
    let Participants { order, payment, .. } = &participants;
    suite.pause(payment, "process_payment").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    in_progress(&suite, 1).await?;
    suite.execute("update saga.saga_instance set deadline = now()").await?;
    ensure!(running(order).await? == 0.0, "the detector runs");
    let checked = order.client.act("/api/admin/timeouts/check").await?;
    ensure!(checked["timed_out"] == 1, "{checked}");
    suite.resume(payment, "process_payment").await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "the saga is left as it stands")]
async fn an_event_still_in_the_outbox_uses_up_no_nudge() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    suite.pause(&participants.inventory, "reserve_stock").await?;
    participants.order.client.act("/api/admin/relay/pause").await?;
    participants.place(&[("A", 1)], "tok_visa").await?;
    let outbox = &participants.order.app.participant().outbox;
    let republish = async || {
        suite.execute("update saga.saga_instance set last_progress_at = now() - interval '1 hour'").await?;
        anyhow::Ok(saga_store::stalled::republish(outbox, Duration::from_secs(60)).await?)
    };
    ensure!(republish().await? == 0, "it waits in the outbox");
    participants.order.client.act("/api/admin/relay/resume").await?;
    let published = "select count(*) from orders.outbox_published where event_type = 'OrderCreated.v1'
        and not exists (select from orders.outbox)";
    suite.becomes(published, 1).await?;
    ensure!(republish().await? == 1, "it counts as helped, and was not");
    ensure!(republish().await? == 0, "once is enough");
    Ok(())
}

#[suite_tests::test]
async fn a_timeout_tells_where_the_saga_stood_and_for_how_long() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    suite.pause(&participants.payment, "process_payment").await?;
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    in_progress(&suite, 1).await?;
    let late = "update saga.saga_instance set started_at = started_at - interval '1 hour', deadline = now()";
    suite.execute(late).await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    let path = format!("/api/orders/{}/events", order["order_id"].as_str().context("no id")?);
    let events = participants.order.client.items(&path).await?;
    let event = events.iter().find(|e| e["event_type"] == "SagaTimedOut.v1").context("no event")?;
    let told: SagaTimedOut = serde_json::from_value(event["payload"].clone())?;
    ensure!(told.step.as_deref() == Some("reserve_stock") && told.current_step == 1, "{told:?}");
    ensure!(told.last_event_type.as_deref() == Some("StockReserved.v1"), "{told:?}");
    ensure!(told.detected_by.as_deref() == event["service"].as_str(), "{event:#}");
    ensure!(event["payload"]["started_at"] == saga["started_at"], "{event:#} of {saga:#}");
    let elapsed = told.elapsed_ms.context("no time")?;
    let started_at = told.started_at.context("no start")?;
    let until_deadline = (told.deadline - started_at).whole_milliseconds();
    ensure!(i128::from(elapsed) >= until_deadline && elapsed >= 3_600_000, "{told:?}");
    let detected = "select (extract(epoch from j.occurred_at - s.started_at) * 1000)::bigint + 1
        from saga.saga_step j join saga.saga_instance s using (saga_id) where j.step = 'detect_timeout'";
    ensure!(elapsed <= suite.number(detected).await?, "{told:?}");
    suite.resume(&participants.payment, "process_payment").await?;
    suite.audit().await
}

async fn in_progress(suite: &TestSuite, count: i64) -> Test {
    suite.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", count).await
}

/// The event that would confirm the order.
fn paid(order: &Value) -> Forged {
    let id = |name: &str| order[name].as_str().and_then(|id| id.parse::<Uuid>().ok()).expect("an id");
    Forged::paid(OrderId(id("order_id")), id("saga_id"))
}

/// While the database's clock is an hour ahead an order is cancelled, whose events are not published.
#[suite_tests::test]
async fn deadlines_by_a_clock_ahead_count_from_now() -> Test {
    let tuning = Tuning {
        saga_deadline: Duration::from_secs(3),
        compensation_deadline: Duration::from_secs(3),
        ..Tuning::default()
    };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    let order = &participants.order.client;
    order.act("/api/admin/relay/pause").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let ahead = "select count(*) from saga.saga_instance
        where status = 'COMPENSATING' and compensation_deadline < now() + interval '1 minute'";
    suite.becomes(ahead, 1).await?;
    suite
        .execute("update saga.saga_instance set compensation_deadline = compensation_deadline + interval '1 hour'")
        .await?;
    suite.becomes(ahead, 1).await?;
    order.act("/api/admin/relay/resume").await?;
    participants.saga_becomes(&placed, "COMPENSATED").await?;
    suite.audit().await
}
