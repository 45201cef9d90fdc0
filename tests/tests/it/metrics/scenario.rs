//! A suite in which every counted event has happened.

use faults::{FaultPoint, FaultSpec, Kind};
use suite_tests::Receiver;

use super::Shown;
use crate::{messages::product, prelude::*};

pub(super) const PRICE: i64 = 700;
/// The trace of every order here, which is sampled.
pub(super) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// With a webhook, and its receiver.
pub(super) async fn suite() -> anyhow::Result<(TestSuite, Receiver)> {
    let receiver = Receiver::start().await?;
    let resilience = "project_product_created.attempts=2,project_product_created.initial=1ms,\
                      process_payment.attempts=50,process_payment.initial=20ms,process_payment.open_for=200ms";
    let webhook = crate::webhook::to(&receiver.url);
    let tuning = Tuning { resilience, webhook, metrics_every: Duration::from_secs(1), ..Tuning::default() };
    Ok((TestSuite::with(tuning).await?, receiver))
}

pub(super) async fn place(participants: &Participants, quantity: i64, token: &str) -> anyhow::Result<Value> {
    let request = participants.order.client.request(Method::POST, "/api/orders");
    let request = request.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    participants.order.client.send(request.json(&order_of(&[("A", quantity)], token))).await?.expect(201)
}

/// Three confirmed orders; one that is declined and one that cannot be filled. Returns the first.
pub(super) async fn ends_by_themselves(participants: &Participants) -> anyhow::Result<Value> {
    // Every metric of this path is counted once, and the fault has ended.
    let late = FaultSpec::new(FaultPoint::InStep, Kind::Latency).latency(1).first(1);
    participants.inventory.faults.arm(late, "test")?;
    let first = place(participants, 1, "tok_visa").await?;
    for confirmed in [place(participants, 1, "tok_visa").await?, place(participants, 1, "tok_visa").await?] {
        participants.saga_becomes(&confirmed, "COMPLETED").await?;
    }
    participants.saga_becomes(&place(participants, 1, "tok_declined").await?, "COMPENSATED").await?;
    participants.saga_becomes(&place(participants, 5000, "tok_visa").await?, "COMPENSATED").await?;
    participants.saga_becomes(&first, "COMPLETED").await?;
    Ok(first)
}

/// A customer cancels a confirmed order, whose compensation is given up and resumed.
pub(super) async fn gets_stuck(suite: &TestSuite, participants: &Participants, order: &Value) -> Test {
    suite.pause(&participants.payment, "refund_payment").await?;
    suite.pause(&participants.inventory, "release_stock").await?;
    ensure!(participants.cancel(order).await? == 202);
    participants.saga_becomes(order, "COMPENSATING").await?;
    eventually(async || {
        let shown = Shown::by(participants).await?;
        shown.expect(&[
            ("saga_active", &[("status", "COMPENSATING")], 1.0),
            ("saga_receipts_due", &[("service", "payment")], 1.0),
            ("saga_receipts_due", &[("service", "inventory")], 1.0),
            ("compensation_debt_money_minor_units", &[("currency", "USD")], PRICE as f64),
            ("compensation_debt_stock_units", &[], 1.0),
            ("consumers_paused", &[("step", "refund_payment")], 1.0),
            ("consumer_pending", &[("step", "refund_payment")], 1.0),
        ])?;
        for job in ["payment", "inventory"] {
            let age = shown.of(job, "compensation_debt_oldest_age_seconds", &[])?;
            ensure!(age > 0.0 && age < 60.0, "{job} has owed an undo for {age} s");
        }
        anyhow::Ok(())
    })
    .await?;
    let saga_id = order["saga_id"].as_str().unwrap_or_default();
    // As if the broker had come back without it: then it is no longer in flight.
    for change in [
        "orders.outbox_published set stream_epoch = 0 where event_type = 'OrderCancelled.v1' and",
        "saga.saga_instance set compensation_attempts = 5, compensation_deadline = now() where",
    ] {
        let changed = suite.execute(format!("update {change} saga_id = '{saga_id}'")).await?;
        ensure!(changed == 1, "there is no saga {saga_id}");
    }
    participants.saga_becomes(order, "FAILED").await?;
    eventually(async || Shown::by(participants).await?.expect(&[("saga_stuck", &[], 1.0)])).await?;
    participants.order.client.act(&format!("/api/admin/sagas/{saga_id}/resume")).await?;
    suite.resume(&participants.payment, "refund_payment").await?;
    suite.resume(&participants.inventory, "release_stock").await?;
    participants.saga_becomes(order, "COMPENSATED").await.map(drop)
}

/// Six orders while the card processor fails, until the breaker has opened; all are confirmed in the end.
pub(super) async fn opens_the_breaker(suite: &TestSuite, participants: &Participants) -> Test {
    suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    let mut orders = Vec::new();
    for _ in 0..6 {
        orders.push(place(participants, 1, "tok_visa").await?);
    }
    participants.payment.breaker_until("process_payment", |breaker| breaker["totals"]["opened"] != 0).await?;
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    participants.sagas_become(&orders, "COMPLETED").await
}

/// Two events become dead letters: one is replayed, after a dry run, and the other discarded.
pub(super) async fn leaves_dead_letters(suite: &TestSuite, participants: &Participants) -> Test {
    suite.forbid("orders.product_view", "sku not like 'X%'").await?;
    for sku in ["X-1", "X-2"] {
        suite.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &product(sku))).await?;
    }
    let step = [("step", "project_product_created")];
    eventually(async || Shown::by(participants).await?.expect(&[("dead_letters_pending", &step, 2.0)])).await?;
    let before = Shown::by(participants).await?.sum("inbox_applied_total", &step)?;
    let client = &participants.order.client;
    let batch = json!({"filter": {"step": "project_product_created"}, "dry_run": true});
    client.post("/api/admin/dlq/replay", &batch).await?.expect(200)?;
    suite.allow("orders.product_view").await?;
    client.post("/api/admin/dlq/replay", &batch).await?.expect(200)?;
    Shown::by(participants).await?.expect(&[("inbox_applied_total", &step, before)])?;
    let letters = client.items("/api/admin/dlq?step=project_product_created").await?;
    let path = |n: usize| format!("/api/admin/dlq/{}", letters[n]["id"].as_str().unwrap_or_default());
    client.post(&format!("{}/replay", path(0)), &json!({"reason": "repaired"})).await?.expect(200)?;
    client.delete(&path(1), &json!({"reason": "not needed"})).await?.expect(200)?;
    Shown::by(participants).await?.expect(&[("inbox_applied_total", &step, before + 1.0)])
}
