//! The state after a crash.

use std::fs;

use serde_json::json;

use crate::support::{Lab, answer, eventually, totals};

#[tokio::test]
async fn everything_answered_survives_a_crash() {
    let lab = Lab::with(|config| config.fsync = true).await;
    let id = lab.charged("refunded", 1_999).await;
    answer(lab.post(&format!("/v1/charges/{id}/refund"))).await;
    let kept = answer(lab.charge("kept", "tok_visa", 500)).await;
    answer(lab.charge("declined", "tok_expired", 700)).await;
    answer(lab.void("voided")).await;
    lab.charge("lost", "tok_unknown_outcome", 300).send().await.unwrap_err();
    let before = lab.totals().await;
    assert_eq!(before, totals(2_799, 1_999, 3, 1, 1));

    let lab = lab.crash_and_restart(|_| {}).await;

    assert_eq!(lab.totals().await, before);
    let again = answer(lab.charge("kept", "tok_visa", 500)).await;
    assert_eq!((again.status, again.replayed, &again.body), (200, true, &kept.body));
    assert_eq!(answer(lab.charge("refunded", "tok_visa", 1_999)).await.body["refunded"], true);
    assert_eq!(answer(lab.charge("declined", "tok_expired", 700)).await.body["decline_code"], "expired_card");
    assert_eq!(answer(lab.charge("voided", "tok_visa", 1)).await.body["decline_code"], "voided");
    assert_eq!(answer(lab.charge("lost", "tok_unknown_outcome", 300)).await.status, 200);
    assert_eq!(answer(lab.charge("kept", "tok_visa", 501)).await.status, 422);
}

#[tokio::test]
async fn card_tokens_are_not_stored() {
    let lab = Lab::start().await;
    lab.charged("k", 100).await;
    lab.crash_and_restart(|journal| assert!(!fs::read_to_string(journal).unwrap().contains("tok_"))).await;
}

#[tokio::test]
async fn stopping_lets_a_slow_charge_finish() {
    let lab = Lab::start().await;
    let slow = answer(lab.charge("k", "tok_slow", 100));
    let stopping = async {
        eventually("the slow charge is in progress", async || lab.is_charging("k").await).await;
        lab.gateway.stop().await;
    };
    let (charged, ()) = tokio::join!(slow, stopping);
    assert_eq!((charged.status, &charged.body["status"]), (201, &json!("captured")));
}
