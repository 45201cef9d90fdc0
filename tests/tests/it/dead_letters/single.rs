//! One dead letter: it is kept in full, and a replay takes effect at once.

use async_nats::HeaderMap;
use faults::{FaultPoint, FaultSpec, Kind};
use messaging::dead_letter;

use super::{STEP, at_once, id, make_letters, replay_one, unwelcome};
use crate::prelude::*;

#[suite_tests::test]
async fn a_replayed_dead_letter_completes_its_saga() -> Test {
    let tuning = Tuning { resilience: "confirm_order.attempts=2,confirm_order.initial=1ms", ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    suite.forbid("orders.customer_order", "status <> 'CONFIRMED'").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let letter = participants.order.client.until_items("/api/admin/dlq?step=confirm_order", 1).await?.remove(0);
    ensure!(letter["saga_id"] == placed["saga_id"] && letter["attempts"] == 2, "{letter:#}");
    suite.allow("orders.customer_order").await?;
    let resolved = replay_one(&participants.order, &letter).await?.expect(200)?;
    ensure!(resolved["status"] == "RESOLVED", "{resolved:#}");
    ensure!(replay_one(&participants.order, &letter).await?.status == 409);
    let discard = participants.order.client.delete(&format!("/api/admin/dlq/{}", id(&letter)), &json!({})).await?;
    ensure!(discard.status == 409, "only a pending one can be discarded");
    // The replay has answered, so its effect is there already.
    let saga = participants.saga(&placed).await?;
    ensure!(saga["status"] == "COMPLETED", "{saga:#}");
    ensure!(participants.order(&placed).await?["status"] == "CONFIRMED");
    suite.audit().await
}

#[suite_tests::test(unaudited = "the dead letter is left")]
async fn an_entry_is_replayed_three_times_at_most() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let letter = make_letters(&suite, &order, 1).await?.remove(0);
    for replays in 1..=3 {
        let again = replay_one(&order, &letter).await?.expect(200)?;
        ensure!(again["status"] == "PENDING" && again["replay_count"] == replays, "{again:#}");
        ensure!(again["notes"].as_str().is_some_and(|n| n.contains("forbidden")), "{again:#}");
    }
    ensure!(replay_one(&order, &letter).await?.status == 409);
    let participant = order.app.participant();
    let replays = participant.replays(&order.subscriptions);
    ensure!(dead_letter::auto_replay(&replays, STEP).await?.is_none(), "a fourth replay was begun");
    let batch = super::start(&order, &json!({"filter": {"step": STEP}})).await?;
    ensure!(batch["selected"] == 0, "{batch:#}");
    Ok(())
}

#[suite_tests::test]
async fn an_outage_uses_up_no_replay() -> Test {
    let tuning = Tuning { resilience: "process_payment.attempts=1", ..Tuning::default() };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 10).await?;
    suite.forbid("payment.payment", "amount > 100").await?;
    let placed = participants.place(&[("A", 1)], "tok_visa").await?;
    let letter = participants.payment.client.until_items("/api/admin/dlq?step=process_payment", 1).await?.remove(0);
    suite.allow("payment.payment").await?;
    let away = FaultSpec::new(FaultPoint::GatewayCall, Kind::Error);
    let fault = participants.payment.faults.arm(away, "test")?;
    for _ in 0..4 {
        let again = replay_one(&participants.payment, &letter).await?.expect(200)?;
        ensure!(again["status"] == "PENDING" && again["replay_count"] == 0, "{again:#}");
        ensure!(again["notes"].as_str().is_some_and(|n| n.contains("unavailable")), "{again:#}");
    }
    ensure!(participants.payment.faults.disarm(fault.id));
    let resolved = replay_one(&participants.payment, &letter).await?.expect(200)?;
    ensure!(resolved["status"] == "RESOLVED" && resolved["replay_count"] == 1, "{resolved:#}");
    ensure!(resolved["actions"].as_array().unwrap().len() == 5, "{resolved:#}");
    participants.saga_becomes(&placed, "COMPLETED").await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "the message is made up, and its dead letter left")]
async fn a_message_without_an_event_id_is_kept_once_and_whole() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let mut headers = HeaderMap::new();
    headers.insert("ce-type", "ProductCreated.v1");
    headers.append("tracestate", "a=1");
    headers.append("tracestate", "b=2");
    let subject = "events.inventory.ProductCreated";
    for body in [vec![0xff, 0x00, b'{'], vec![0xff, 0x00, b'{'], vec![b'x'; 100]] {
        suite.publish(&Forged::bytes(subject, headers.clone(), body)).await?;
    }
    // Behind them in the same stream: when it has arrived, they have been processed.
    suite.publish(&Forged::new(INVENTORY, Uuid::now_v7(), &unwelcome(1))).await?;
    eventually(async || order.client.get("/api/products/X-1").await.is_ok_and(|a| a.status == 200)).await?;
    let kept = order.client.until_items(&format!("/api/admin/dlq?limit=200&step={STEP}"), 2).await?;
    let odd = kept.iter().find(|l| l["payload"] == "\u{fffd}\0{").expect("the one that is no UTF-8");
    ensure!(odd["payload_base64"] == "/wB7" && odd["event_id"].is_null(), "{odd:#}");
    ensure!(odd["headers"]["tracestate"] == json!(["a=1", "b=2"]), "{odd:#}");
    ensure!(odd["headers"]["ce-type"] == "ProductCreated.v1" && odd["reason"] == "undecodable", "{odd:#}");
    let long = kept.iter().find(|l| l["payload"] != odd["payload"]).expect("the other one");
    ensure!(long["payload_base64"].as_str().is_some_and(|b| b.len() == 136 && !b.contains('\n')), "{long:#}");
    let again: Value = replay_one(&order, odd).await?.expect(200)?;
    ensure!(again["status"] == "PENDING" && again["notes"].as_str().unwrap().contains("ce-id"), "{again:#}");
    Ok(())
}
