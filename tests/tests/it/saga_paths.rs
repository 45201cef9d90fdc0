//! Every path through the saga ends with everything kept or everything undone.

use crate::prelude::*;

#[suite_tests::test]
async fn a_paid_order_is_confirmed() -> Test {
    let (suite, participants) = TestSuite::selling(1_250, 10).await?;
    participants.sell("B", 300, 10).await?;
    let order = participants.place(&[("A", 2), ("B", 1)], "tok_visa").await?;
    ensure!(order["status"] == "PENDING" && order["total"]["amount"] == 2_800);
    let saga = participants.saga_becomes(&order, "COMPLETED").await?;
    let names: Vec<_> = saga["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect();
    ensure!(names == ["create_order", "reserve_stock", "process_payment", "confirm_order"], "{names:?}");
    ensure!(participants.order(&order).await?["status"] == "CONFIRMED");
    let payment = participants.payment_of(&order).await?.unwrap();
    ensure!(payment["status"] == "CAPTURED" && payment["amount"]["amount"] == 2_800, "{payment}");
    ensure!(participants.product("A").await?["reserved"] == 2);
    suite.audit().await
}

#[suite_tests::test]
async fn a_callers_correlation_id_finds_its_sagas() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    let order = &participants.order.client;
    let request = order.request(Method::POST, "/api/orders").header("x-correlation-id", "shop/7");
    let placed = order.send(request.json(&order_of(&[("A", 1)], "tok_visa"))).await?.expect(201)?;
    let found = order.items("/api/sagas?correlation_id=shop%2F7").await?;
    ensure!(found.len() == 1 && found[0]["saga_id"] == placed["saga_id"], "{found:#?}");
    let order_id = placed["order_id"].as_str().unwrap();
    for (correlation_id, count) in [("shop%2F7", 1), ("shop%2F8", 0)] {
        let path = format!("/api/sagas?order_id={order_id}&correlation_id={correlation_id}");
        ensure!(order.items(&path).await?.len() == count, "{path}");
    }
    participants.saga_becomes(&placed, "COMPLETED").await?;
    suite.audit().await
}

#[suite_tests::test]
async fn an_order_that_cannot_be_filled_reserves_nothing() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.sell("RARE", 100, 1).await?;
    let order = participants.place(&[("A", 2), ("RARE", 2)], "tok_visa").await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(saga["failed_at_step"] == "reserve_stock" && saga["receipts_due"] == json!([]));
    ensure!(participants.order(&order).await?["status"] == "CANCELLED");
    ensure!(participants.product("A").await?["reserved"] == 0, "all lines or none");
    ensure!(participants.payment_of(&order).await?.is_none_or(|p| p["status"] == "VOIDED"));
    suite.audit().await
}

#[suite_tests::test]
async fn a_declined_card_cancels_the_order_and_gives_the_stock_back() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.place(&[("A", 3)], "tok_declined").await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    ensure!(saga["failed_at_step"] == "process_payment");
    ensure!(participants.product("A").await?["available"] == 10);
    let payment = participants.payment_of(&order).await?.unwrap();
    ensure!(payment["status"] == "DECLINED" && payment["decline_code"] == "card_declined", "{payment}");
    let dead = participants.payment.client.get("/api/admin/dlq/count").await?.expect(200)?;
    ensure!(dead["count"] == 0, "a refusal is an event, never an error");
    suite.audit().await
}

#[suite_tests::test]
async fn a_late_payment_service_charges_nothing() -> Test {
    let tuning = Tuning { saga_deadline: Duration::from_secs(1), ..Tuning::default() };
    let (suite, mut participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    participants.payment.stop().await;
    let order = &participants.order.client;
    let stopped = order.order(&[("A", 3)], "tok_visa").await?;
    let path = format!("/api/orders/{}", stopped["order_id"].as_str().unwrap());
    order.until(&path, |order| order["status"] == "CANCELLED").await?;
    participants.payment = suite.start(PAYMENT).await?;
    participants.saga_becomes(&stopped, "COMPENSATED").await?;
    ensure!(participants.product("A").await?["available"] == 10);
    let totals = suite.gateway_client().get("/v1/totals").await?.expect(200)?;
    ensure!(totals["totals"].as_array().is_some_and(Vec::is_empty), "a card was charged: {totals}");
    suite.audit().await
}

#[suite_tests::test]
async fn a_customer_may_cancel_before_and_after_the_confirmation() -> Test {
    let (suite, participants) = TestSuite::selling(700, 10).await?;
    let confirmed = participants.confirmed(&[("A", 1)]).await?;
    ensure!(participants.cancel(&confirmed).await? == 202);
    participants.saga_becomes(&confirmed, "COMPENSATED").await?;
    ensure!(participants.cancel(&confirmed).await? == 200, "cancelling again changes nothing");
    ensure!(participants.payment_of(&confirmed).await?.unwrap()["status"] == "REFUNDED");
    let pending = participants.place(&[("A", 1)], "tok_visa").await?;
    ensure!(participants.cancel(&pending).await? == 202);
    participants.saga_becomes(&pending, "COMPENSATED").await?;
    ensure!(participants.product("A").await?["available"] == 10);
    ensure!(suite.money_kept().await? == 0);
    suite.audit().await
}

#[suite_tests::test]
async fn a_timed_out_order_is_cancelled_without_its_event_too() -> Test {
    let tuning = Tuning {
        saga_deadline: Duration::from_millis(500),
        compensation_deadline: Duration::from_secs(2),
        ..Tuning::default()
    };
    let (suite, participants) = TestSuite::selling_with(tuning, 700, 10).await?;
    for step in ["cancel_timed_out_order", "confirm_order"] {
        suite.pause(&participants.order, step).await?;
    }
    let order = participants.place(&[("A", 1)], "tok_visa").await?;
    let saga = participants.saga_becomes(&order, "COMPENSATED").await?;
    let driven = saga["steps"].as_array().unwrap().iter().any(|s| s["step"] == "drive_compensation");
    ensure!(driven && saga["failed_at_step"] == "detect_timeout", "{saga:#}");
    for step in ["cancel_timed_out_order", "confirm_order"] {
        suite.resume(&participants.order, step).await?;
    }
    ensure!(participants.product("A").await?["available"] == 10);
    suite.audit().await
}
