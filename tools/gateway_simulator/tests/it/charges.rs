//! Charges: what is answered, stored and declined.

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use crate::support::{Lab, answer, charge_body, totals};

#[tokio::test]
async fn a_charge_is_captured_and_can_be_found_by_its_key() {
    let lab = Lab::start().await;
    let charged = answer(lab.charge("k", "tok_visa", 1_999)).await;
    assert_eq!((charged.status, charged.replayed), (201, false));
    let expected = json!({
        "charge_id": charged.body["charge_id"], "idempotency_key": "k", "status": "captured", "amount": 1_999,
        "currency": "USD", "order_id": "order-1", "customer_id": "alice", "refunded": false,
    });
    assert_eq!(charged.body, expected);
    let found = lab.get("/v1/charges?idempotency_key=k").await;
    assert_eq!(found.status(), 200);
    assert_eq!(found.json::<serde_json::Value>().await.unwrap(), expected);
    assert_eq!(lab.totals().await, totals(1_999, 0, 1, 0, 0));
}

#[tokio::test]
async fn an_unknown_key_or_charge_is_not_found() {
    let lab = Lab::start().await;
    assert_eq!(answer(lab.post(&format!("/v1/charges/{}/refund", Uuid::now_v7()))).await.status, 404);
    assert_eq!(answer(lab.post("/v1/charges/nonsense/refund")).await.status, 422);
    assert_eq!(lab.get("/v1/charges?idempotency_key=unknown").await.status(), 404);
    assert_eq!(lab.get("/v1/charges").await.status(), 422);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let lab = Lab::start().await;
    lab.charged("k", 1_999).await;
    let other = answer(lab.charge("k", "tok_visa", 2_000)).await;
    assert_eq!((other.status, other.content_type.as_str()), (422, "application/problem+json"));
    assert_eq!(lab.totals().await, totals(1_999, 0, 1, 0, 0));
}

#[tokio::test]
async fn eight_identical_charges_at_once_charge_once() {
    let lab = Lab::start().await;
    for round in 0..25 {
        let key = format!("key-{round}");
        let answers = join_all((0..8).map(|_| answer(lab.charge(&key, "tok_visa", 100)))).await;
        let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 201]);
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    }
    assert_eq!(lab.totals().await, totals(2_500, 0, 25, 0, 0));
}

#[tokio::test]
async fn a_declined_card_is_declined_again_with_the_same_reason() {
    let lab = Lab::start().await;
    let refusals = [
        ("tok_declined", 100, "card_declined"),
        ("tok_insufficient_funds", 100, "insufficient_funds"),
        ("tok_expired", 100, "expired_card"),
        ("tok_visa", 1_000_001, "amount_too_large"),
        ("tok_amex", 100, "invalid_token"),
    ];
    for (token, amount, code) in refusals {
        let expected = json!({"idempotency_key": code, "status": "declined", "decline_code": code});
        for replayed in [false, true] {
            let declined = answer(lab.charge(code, token, amount)).await;
            assert_eq!((declined.status, declined.replayed), (402, replayed), "{token}");
            assert_eq!(declined.body, expected);
        }
        assert_eq!(lab.json(&format!("/v1/charges?idempotency_key={code}")).await, expected);
    }
    assert_eq!(lab.totals().await, totals(0, 0, 0, 0, 5));
}

#[tokio::test]
async fn a_charge_or_void_without_a_usable_key_is_refused() {
    let lab = Lab::start().await;
    let body = charge_body("tok_visa", 100);
    let missing = answer(lab.post("/v1/charges").json(&body)).await;
    assert_eq!((missing.status, missing.content_type.as_str()), (400, "application/problem+json"));
    assert_eq!(answer(lab.post("/v1/voids")).await.status, 400);
    for key in ["", "two words", &"k".repeat(256)] {
        assert_eq!(answer(lab.charge(key, "tok_visa", 100)).await.status, 400, "{key:?}");
    }
    let twice = lab.charge("a", "tok_visa", 100).header("Idempotency-Key", "b");
    assert_eq!(answer(twice).await.status, 400);
    assert_eq!(lab.totals().await, json!(null));
}

#[tokio::test]
async fn an_invalid_body_is_a_problem_with_a_pointer() {
    let lab = Lab::start().await;
    let faults = [
        (json!({"amount": 0, "currency": "USD", "token": "t"}), "/amount"),
        (json!({"amount": -5, "currency": "USD", "token": "t"}), "/amount"),
        (json!({"amount": 1.5, "currency": "USD", "token": "t"}), "/amount"),
        (json!({"amount": "1", "currency": "USD", "token": "t"}), "/amount"),
        (json!({"amount": 1e30, "currency": "USD", "token": "t"}), "/amount"),
        (json!({"amount": 1, "currency": "usd", "token": "t"}), "/currency"),
        (json!({"amount": 1, "currency": "AAA", "token": "t"}), "/currency"),
        (json!({"amount": 1, "currency": "USD", "token": ""}), "/token"),
        (json!({"amount": 1, "currency": "USD", "token": "é".repeat(129)}), "/token"),
        (json!({"amount": 1, "currency": "USD"}), "/token"),
        (json!({"amount": 1, "currency": "USD", "token": "t", "tip": 1}), "/tip"),
        (json!({"amount": 1, "currency": "USD", "token": "t", "order_id": "x".repeat(256)}), "/order_id"),
    ];
    for (body, pointer) in faults {
        let refused = answer(lab.post("/v1/charges").header("Idempotency-Key", "k").json(&body)).await;
        assert_eq!((refused.status, refused.content_type.as_str()), (422, "application/problem+json"), "{body}");
        assert_eq!(refused.body["errors"][0]["pointer"], pointer, "{body}");
    }
    let post = || lab.post("/v1/charges").header("Idempotency-Key", "k");
    assert_eq!(answer(post().header("content-type", "application/json").body("{")).await.status, 400);
    assert_eq!(answer(post().body("amount=1")).await.status, 415);
    assert_eq!(lab.totals().await, json!(null));
}
