//! Refunds and voids.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Lab, answer, totals};

#[tokio::test]
async fn a_refund_is_full_and_happens_once() {
    let lab = Lab::start().await;
    let id = lab.charged("k", 1_999).await;
    for replayed in [false, true] {
        let refunded = answer(lab.post(&format!("/v1/charges/{id}/refund"))).await;
        assert_eq!((refunded.status, refunded.replayed), (200, replayed));
        assert_eq!((&refunded.body["charge_id"], &refunded.body["refunded"]), (&json!(id), &json!(true)));
        assert_eq!(refunded.body["status"], "captured");
    }
    assert_eq!(lab.totals().await, totals(1_999, 1_999, 1, 1, 0));
}

#[tokio::test]
async fn a_void_before_the_charge_refuses_it_for_ever() {
    let lab = Lab::start().await;
    for _ in 0..2 {
        let voided = answer(lab.void("k")).await;
        assert_eq!((voided.status, &voided.body), (200, &json!({"outcome": "voided"})));
        let refused = answer(lab.charge("k", "tok_visa", 1_999)).await;
        let body = json!({"idempotency_key": "k", "status": "declined", "decline_code": "voided"});
        assert_eq!((refused.status, &refused.body), (402, &body));
    }
    assert_eq!(lab.json("/v1/charges?idempotency_key=k").await["decline_code"], "voided");
    assert_eq!(lab.totals().await, json!(null));
}

#[tokio::test]
async fn a_void_after_the_charge_refunds_it() {
    let lab = Lab::start().await;
    let id = lab.charged("k", 1_999).await;
    for _ in 0..2 {
        let voided = answer(lab.void("k")).await;
        let body = json!({"outcome": "refunded", "charge_id": id, "amount": 1_999, "currency": "USD"});
        assert_eq!((voided.status, &voided.body), (200, &body));
    }
    assert_eq!(lab.totals().await, totals(1_999, 1_999, 1, 1, 0));
}

#[tokio::test]
async fn concurrent_charges_and_voids_never_keep_a_charge() {
    let lab = Lab::start().await;
    for round in 0..25 {
        let key = format!("key-{round}");
        let calls = (0..8).map(|n| if n % 2 == 0 { lab.charge(&key, "tok_visa", 100) } else { lab.void(&key) });
        join_all(calls.map(answer)).await;
    }
    let sums = lab.totals().await;
    assert_eq!((&sums["charged"], &sums["charges"]), (&sums["refunded"], &sums["refunds"]));
}
