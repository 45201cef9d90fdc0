//! What the clock has to do with it: deadlines, receipts, and the end of patience.
//!
//! Not audited: what is looked at is an order in the middle of its way; deadlines are set by hand.

use std::time::Duration;

use anyhow::ensure;
use contracts::PAYMENT;
use serde_json::{Value, json};
use suite_tests::{Dancers, Stage, Tuning, order_of};

use super::{awaited, explained, finding, follow, found, kinds, says};
use crate::Test;

/// A detector that does nothing by itself for the time of a test.
const NEVER: Duration = Duration::from_secs(3_600);

async fn without_payment(tuning: Tuning) -> anyhow::Result<(Stage, Dancers, Value)> {
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    Ok((stage, suite, placed))
}

#[tokio::test]
async fn the_deadline_has_passed_and_nobody_has_noticed() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_millis(300), timeout_check_every: NEVER, ..Tuning::default() };
    let (_stage, suite, placed) = without_payment(tuning).await?;
    let (explanation, passed) = found(&suite.order, &placed, "deadline_passed").await?;
    says(&passed, &["deadline has passed", "no service has noticed"])?;
    ensure!(passed["since"] == explanation["deadline"], "{explanation:#}");
    Ok(())
}

#[tokio::test]
async fn the_order_took_too_long_and_is_about_to_be_cancelled() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_millis(500), ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    stage.pause(&suite.order, "cancel_timed_out_order").await?;
    stage.pause(&suite.payment, "process_payment").await?;
    let placed = suite.place(&[("A", 1)], "tok_visa").await?;
    let (explanation, timed_out) = found(&suite.order, &placed, "timed_out").await?;
    says(&timed_out, &["The deadline of ", "cancel_timed_out_order cancels the order", "order does so without it"])?;
    ensure!(awaited(&explanation) == ["cancel_timed_out_order of order"], "{explanation:#}");
    ensure!(explanation["deadline"].is_string(), "{explanation:#}");
    let (_, paused) = found(&suite.order, &placed, "consumer_paused").await?;
    follow(&paused, &suite.order).await?;
    stage.resume(&suite.payment, "process_payment").await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    let after = explained(&suite.order, &placed).await?;
    says(&finding(&after, "timed_out").unwrap(), &["took too long", "no end by the deadline"])?;
    ensure!(after["waiting_for"] == json!([]) && after["deadline"].is_null(), "{after:#}");
    Ok(())
}

/// A confirmed order that is cancelled while payment is away.
async fn cancelled(tuning: Tuning) -> anyhow::Result<(Stage, Dancers, Value)> {
    let (stage, suite) = Stage::selling_with(tuning, 100, 1_000).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    stage.pause(&suite.payment, "refund_payment").await?;
    ensure!(suite.cancel(&placed).await? == 202);
    Ok((stage, suite, placed))
}

#[tokio::test]
async fn a_participant_owes_its_receipt() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    let placed = suite.confirmed(&[("A", 1)]).await?;
    let Dancers { order, inventory, payment, .. } = suite;
    payment.stop().await;
    let cancel = format!("/api/orders/{}/cancel", placed["order_id"].as_str().unwrap());
    ensure!(order.client.post(&cancel, &json!({"reason": "too late"})).await?.status == 202);
    let explanation = testkit::eventually(super::LIMIT, async || {
        let (explanation, due) = found(&order, &placed, "receipts_due").await?;
        says(&due, &["asked once"])?;
        ensure!(awaited(&explanation) == ["refund_payment of payment"], "{explanation:#}");
        says(&due, &["The receipt of payment is missing"])?;
        // Inventory's receipt may still be on its way.
        ensure!(kinds(&explanation) == ["service_down", "receipts_due"], "{explanation:#}");
        anyhow::Ok(Some(explanation))
    })
    .await?;
    ensure!(explanation["at_deadline"].as_str().is_some_and(|s| s.contains("1st of 5 times")), "{explanation:#}");
    let suite = Dancers::of(order, inventory, stage.start(PAYMENT).await?);
    suite.saga_becomes(&placed, "COMPENSATED").await.map(drop)
}

#[tokio::test]
async fn the_receipts_are_overdue() -> Test {
    let tuning =
        Tuning { compensation_deadline: Duration::from_millis(200), timeout_check_every: NEVER, ..Tuning::default() };
    let (stage, suite, placed) = cancelled(tuning).await?;
    let (_, overdue) = found(&suite.order, &placed, "compensation_overdue").await?;
    says(&overdue, &["overdue", "publish the cancellation again"])?;
    ensure!(overdue["since"].is_string(), "{overdue:#}");
    stage.resume(&suite.payment, "refund_payment").await?;
    suite.saga_becomes(&placed, "COMPENSATED").await.map(drop)
}

#[tokio::test]
async fn the_compensation_is_stuck_until_an_operator_resumes_it() -> Test {
    let (stage, suite, placed) = cancelled(Tuning::default()).await?;
    // Payment is not told, and five repetitions have been in vain.
    stage.lose_last("events.order.OrderCancelled").await?;
    let in_vain = "update saga.saga_instance set compensation_attempts = 5, compensation_deadline = now()";
    stage.execute(in_vain).await?;
    suite.saga_becomes(&placed, "FAILED").await?;
    let (explanation, stuck) = found(&suite.order, &placed, "stuck").await?;
    says(&stuck, &["given up after 5 repetitions", "receipt of payment is still missing"])?;
    ensure!(kinds(&explanation).first() == Some(&"stuck"), "{explanation:#}");
    ensure!(explanation["deadline"].is_null(), "{explanation:#}");
    stage.resume(&suite.payment, "refund_payment").await?;
    follow(&stuck, &suite.order).await?;
    suite.saga_becomes(&placed, "COMPENSATED").await?;
    let after = explained(&suite.order, &placed).await?;
    says(&finding(&after, "stuck").unwrap(), &["drive_compensation of order gave up", "no receipts after 5 attempts"])?;
    Ok(())
}

#[tokio::test]
async fn an_order_explains_itself_with_no_other_service_and_no_broker_there() -> Test {
    let (stage, Dancers { order, inventory, payment, .. }) = Stage::selling(100, 1_000).await?;
    stage.nats.lock().await.kill();
    drop((inventory, payment));
    let placed = order.client.post("/api/orders", &order_of(&[("A", 1)], "tok_visa")).await?.expect(201)?;
    let (explanation, _) = found(&order, &placed, "broker_away").await?;
    ensure!(awaited(&explanation) == ["reserve_stock of inventory"], "{explanation:#}");
    Ok(())
}
