//! A participant takes a step after the step's limit, when the order is cancelled: it holds nothing in the end.

use faults::{FaultPoint, Kind};

use super::{last_order, place, text};
use crate::prelude::*;

/// A call to the card processor is held here until everything is undone. `status` is that of the payment.
async fn charged_late(point: &str, status: &str) -> Test {
    let resilience = "process_payment.time_limit=3s,process_payment.attempts=1";
    let tuning = Tuning { resilience, gateway_timeout: Duration::from_secs(60), ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    let payment = &participants.payment;
    let held = payment.arm(&json!({"point": point, "kind": "hang", "first": 1})).await?;
    // Hit when the processor's answer is recorded.
    let recorded = json!({
        "point": "after_commit_before_publish", "kind": "latency", "latency_ms": 1, "scope": {"step": "process_payment"},
    });
    payment.arm(&recorded).await?;
    let is_recorded = || payment.faults.hits().contains_key(&(FaultPoint::AfterCommitBeforePublish, Kind::Latency));
    let refused = place(&participants.order.client, "tok_visa").await?.expect(409)?;
    ensure!(text(&refused["detail"]).contains("process_payment was not answered"), "{refused}");
    let order = last_order(&participants.order.client).await?;
    let undone = participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(!is_recorded(), "the answer is not late");
    payment.client.delete(&format!("/api/admin/faults/{held}"), &json!({})).await?.expect(200)?;
    eventually(async || is_recorded()).await?;
    let paid = participants.payment_of(&order).await?.context("there is no payment")?;
    ensure!(paid["status"] == status, "{paid}");
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    ensure!(participants.order(&order).await?["status"] == "CANCELLED");
    ensure!(participants.saga(&order).await? == undone, "an answer that comes too late changes no saga");
    suite.audit().await
}

cases! {
    fn a_charge_made_after_its_limit_is_fenced() = charged_late("gateway_call", "VOIDED");
    fn a_charge_answered_after_its_limit_is_refunded() = charged_late("after_charge_before_record", "REFUNDED");
}

/// The undo waits for the reservation, which is committed at last.
#[suite_tests::test]
async fn stock_reserved_after_its_limit_is_released() -> Test {
    let resilience = "reserve_stock.time_limit=3s,reserve_stock.attempts=1";
    let (suite, participants) = TestSuite::faulty(Tuning { resilience, ..Tuning::default() }, 100, 10).await?;
    let inventory = &participants.inventory;
    let held = json!({"point": "before_commit", "kind": "hang", "first": 1, "scope": {"step": "reserve_stock"}});
    let held = inventory.arm(&held).await?;
    let client = participants.order.client.clone();
    let placing = tokio::spawn(async move { place(&client, "tok_visa").await });
    suite.becomes("select count(*) from saga.saga_instance where receipts_due = '{inventory}'", 1).await?;
    ensure!(suite.number("select count(*) from inventory.reservation").await? == 0, "the reservation is not late");
    inventory.client.delete(&format!("/api/admin/faults/{held}"), &json!({})).await?.expect(200)?;
    let refused = placing.await??.expect(409)?;
    ensure!(text(&refused["detail"]).contains("reserve_stock was not answered"), "{refused}");
    suite.becomes("select count(*) from inventory.reservation where status = 'RELEASED'", 1).await?;
    ensure!(suite.money_kept().await? == 0 && participants.product("A").await?["available"] == 10);
    suite.audit().await
}
