//! Injected faults.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Lab, answer, totals};

#[tokio::test]
async fn armed_faults_can_be_seen_and_disarmed() {
    let lab = Lab::start().await;
    let nothing = json!({
        "armed": false, "latency_ms": 0, "error_rate": 0.0, "drop_rate": 0.0, "decline_rate": 0.0, "seed": 0,
        "expires_in_seconds": 0,
    });
    let shown = async || lab.json("/v1/faults").await;
    assert_eq!(shown().await, nothing);
    let armed = lab.arm(json!({"error_rate": 0.25, "latency_ms": 3, "seed": 7})).await;
    assert_eq!(armed.status, 200);
    assert_eq!(armed.body["expires_in_seconds"], 60);
    assert_eq!((&shown().await["error_rate"], &shown().await["armed"]), (&json!(0.25), &json!(true)));
    let disarmed = lab.client.delete(format!("{}/v1/faults", lab.gateway.base_url)).send().await.unwrap();
    assert_eq!(disarmed.status(), 204);
    assert_eq!(shown().await, nothing);
}

#[tokio::test]
async fn faults_outside_their_limits_are_refused() {
    let lab = Lab::start().await;
    let bad = [
        (json!({"error_rate": 1.5}), "/error_rate"),
        (json!({"drop_rate": -0.1}), "/drop_rate"),
        (json!({"latency_ms": 30_001}), "/latency_ms"),
        (json!({"expires_in_seconds": 0}), "/expires_in_seconds"),
        (json!({"expires_in_seconds": 3_601}), "/expires_in_seconds"),
        (json!({"chaos": true}), "/chaos"),
    ];
    for (faults, pointer) in bad {
        let refused = lab.arm(faults.clone()).await;
        assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (422, &json!(pointer)), "{faults}");
    }
}

#[tokio::test]
async fn an_error_fault_answers_503_and_charges_nothing() {
    let lab = Lab::start().await;
    lab.arm(json!({"error_rate": 1.0})).await;
    assert_eq!(answer(lab.charge("k", "tok_visa", 100)).await.status, 503);
    assert_eq!(answer(lab.void("k")).await.status, 503);
    assert_eq!(lab.totals().await, json!(null));
    assert_eq!(lab.get("/v1/charges?idempotency_key=k").await.status(), 404);
}

#[tokio::test]
async fn a_drop_fault_drops_requests_before_and_after_their_effect() {
    let lab = Lab::start().await;
    lab.arm(json!({"drop_rate": 1.0, "seed": 1})).await;
    for n in 0..32 {
        lab.charge(&format!("key-{n}"), "tok_visa", 100).send().await.unwrap_err();
    }
    let charges = lab.totals().await["charges"].as_u64().unwrap();
    assert!((1..32).contains(&charges), "{charges} of 32 charged");
}

#[tokio::test]
async fn a_decline_fault_declines_fresh_charges_only() {
    let lab = Lab::start().await;
    lab.charged("before", 100).await;
    lab.arm(json!({"decline_rate": 1.0})).await;
    let declined = answer(lab.charge("during", "tok_visa", 100)).await;
    assert_eq!((declined.status, &declined.body["decline_code"]), (402, &json!("card_declined")));
    let expired = answer(lab.charge("expired", "tok_expired", 100)).await;
    assert_eq!((expired.status, &expired.body["decline_code"]), (402, &json!("expired_card")));
    assert_eq!(answer(lab.charge("before", "tok_visa", 100)).await.status, 200);
    assert_eq!(lab.totals().await, totals(100, 0, 1, 0, 2));
}

#[tokio::test]
async fn a_latency_fault_delays_answers() {
    let lab = Lab::start().await;
    lab.arm(json!({"latency_ms": 200})).await;
    let started = Instant::now();
    lab.charged("k", 100).await;
    assert!(started.elapsed() >= Duration::from_millis(200));
}
