//! The timeout against everything else that may end a saga, and against itself.

use std::time::Duration;

use anyhow::ensure;
use contracts::{Currency, Money, OrderId, PaymentId};
use contracts::{
    ORDER, PAYMENT,
    order_fulfillment::{PaymentProcessed, SagaTimedOut},
};
use suite_tests::{Dancers, Forged, Stage, Tuning};
use testkit::eventually;
use uuid::Uuid;

use crate::Test;

#[suite_tests::test(unaudited = "the payments are forged. The detector never runs by itself here: the test fires it")]
async fn a_timeout_and_a_success_at_once_end_in_one_of_the_two() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1000).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    payment.stop().await;
    let mut placed = Vec::new();
    for _ in 0..200 {
        let body = suite_tests::order_of(&[("A", 1)], "tok_visa");
        placed.push(order.client.post("/api/orders", &body).await?.expect(201)?);
    }
    in_progress(&stage, 200).await?;
    let forged: Vec<Forged> = placed.iter().map(paid).collect();
    // Ten at a time, so that the two really meet.
    let jetstream = stage.jetstream().await?;
    let detector =
        saga_store::timeout::Detector { batch: 10, ..order.app.participant().timeout_detector::<SagaTimedOut>() };
    for (round, events) in forged.chunks(10).enumerate() {
        let sagas: Vec<Uuid> = events.iter().map(|e| e.saga_id).collect();
        let due = sqlx::query("update saga.saga_instance set deadline = now() where saga_id = any($1)").bind(&sagas);
        due.execute(&stage.pool).await?;
        // Every other time the detector waits for the first success, so that each of the two comes first sometimes.
        let first_success = async || {
            let sql = "select count(*) from saga.saga_instance where status = 'COMPLETED' and saga_id = any($1)";
            let done: i64 = sqlx::query_scalar(sql).bind(&sagas).fetch_one(&stage.pool).await?;
            anyhow::Ok(done > 0)
        };
        let detect = async {
            if round.is_multiple_of(2) {
                eventually(Duration::from_secs(10), first_success).await?;
            }
            anyhow::Ok(detector.detect_timeout().await?)
        };
        let succeed = futures_util::future::try_join_all(events.iter().map(|e| stage.publish_to(&jetstream, e)));
        tokio::try_join!(detect, succeed)?;
    }
    while detector.detect_timeout().await? > 0 {}
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?);
    eventually(Duration::from_secs(30), async || {
        let open = stage
            .number("select count(*) from saga.saga_instance where status not in ('COMPLETED', 'COMPENSATED')")
            .await?;
        ensure!(open == 0, "{open} sagas have not ended");
        anyhow::Ok(())
    })
    .await?;
    let disagreeing = stage
        .number(
            "select count(*) from saga.saga_instance s join orders.customer_order o using (saga_id)
            where (s.status = 'COMPLETED') <> (o.status = 'CONFIRMED')",
        )
        .await?;
    ensure!(disagreeing == 0, "{disagreeing} orders and sagas disagree");
    let held = suite.product("A").await?["reserved"].as_i64();
    let confirmed = stage.number("select count(*) from orders.customer_order where status = 'CONFIRMED'").await?;
    ensure!(held == Some(confirmed), "{held:?} units are held for {confirmed} orders");
    ensure!((1..200).contains(&confirmed), "{confirmed} of 200 were confirmed: the two have never met");
    Ok(())
}

#[suite_tests::test]
async fn two_detectors_time_each_saga_out_once() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1000).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    payment.stop().await;
    for _ in 0..150 {
        order.client.post("/api/orders", &suite_tests::order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    }
    in_progress(&stage, 150).await?;
    let second = stage.start(ORDER).await?;
    stage.execute("update saga.saga_instance set deadline = now()").await?;
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
    stage.becomes(published, 150).await?;
    let _payment = stage.start(PAYMENT).await?;
    stage.audit().await
}

#[suite_tests::test(unaudited = "the saga is left as it stands")]
async fn an_event_that_still_waits_uses_up_no_nudge() -> Test {
    let tuning = Tuning { timeout_check_every: Duration::from_secs(3600), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 10).await?;
    stage.pause(&suite.inventory, "reserve_stock").await?;
    suite.order.client.post("/api/admin/relay/pause", &serde_json::json!({})).await?.expect(200)?;
    suite.place(&[("A", 1)], "tok_visa").await?;
    let outbox = &suite.order.app.participant().outbox;
    let republish = async || {
        let long_ago = "update saga.saga_instance set last_progress_at = now() - interval '1 hour'";
        stage.execute(long_ago).await?;
        anyhow::Ok(saga_store::stalled::republish(outbox, Duration::from_secs(60)).await?)
    };
    ensure!(republish().await? == 0, "it waits in the outbox");
    suite.order.client.post("/api/admin/relay/resume", &serde_json::json!({})).await?.expect(200)?;
    let published = "select count(*) from orders.outbox_published where event_type = 'OrderCreated.v1'
        and not exists (select from orders.outbox)";
    stage.becomes(published, 1).await?;
    ensure!(republish().await? == 1, "it counts as helped, and was not");
    ensure!(republish().await? == 0, "once is enough");
    Ok(())
}

async fn in_progress(stage: &Stage, count: i64) -> Test {
    stage.becomes("select count(*) from saga.saga_instance where status = 'IN_PROGRESS'", count).await
}

/// The event that would confirm the order.
fn paid(order: &serde_json::Value) -> Forged {
    let id = |name: &str| order[name].as_str().and_then(|id| id.parse::<Uuid>().ok()).expect("an id");
    let event = PaymentProcessed {
        order_id: OrderId(id("order_id")),
        payment_id: PaymentId::of(OrderId(id("order_id"))),
        amount: Money::new(100, Currency::USD),
        gateway_reference: "forged".to_owned(),
    };
    Forged::new(PAYMENT, id("saga_id"), &event)
}
