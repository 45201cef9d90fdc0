//! The cards whose answers are late, lost, or errors at first.

use futures_util::future::join_all;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{Lab, answer, charge_body, eventually, totals};

#[tokio::test]
async fn an_unknown_outcome_is_a_captured_charge_without_an_answer() {
    let lab = Lab::start().await;
    let lost = lab.charge("k", "tok_unknown_outcome", 1_999).send().await.unwrap_err();
    assert!(lost.is_request() && !lost.is_connect() && lost.status().is_none(), "{lost:?}");
    assert_eq!(lab.totals().await, totals(1_999, 0, 1, 0, 0));
    let again = answer(lab.charge("k", "tok_unknown_outcome", 1_999)).await;
    assert_eq!((again.status, again.replayed, &again.body["status"]), (200, true, &json!("captured")));
    assert_eq!(lab.totals().await, totals(1_999, 0, 1, 0, 0));
}

#[tokio::test]
async fn a_dropped_connection_ends_without_a_single_byte() {
    let lab = Lab::start().await;
    let mut stream = raw_charge(&lab, "k", "tok_unknown_outcome").await;
    let mut received = Vec::new();
    // Closed or reset: no byte either way.
    let _ = stream.read_to_end(&mut received).await;
    assert_eq!(String::from_utf8_lossy(&received), "");
}

#[tokio::test]
async fn an_unknown_outcome_that_is_voided_ends_refunded() {
    let lab = Lab::start().await;
    lab.charge("k", "tok_unknown_outcome", 1_999).send().await.unwrap_err();
    assert_eq!(answer(lab.void("k")).await.body["outcome"], "refunded");
    assert_eq!(lab.totals().await, totals(1_999, 1_999, 1, 1, 0));
}

#[tokio::test]
async fn a_flaky_card_fails_twice_per_key_and_then_charges_once() {
    let lab = Lab::start().await;
    for key in ["a", "b"] {
        for _ in 0..2 {
            let failed = answer(lab.charge(key, "tok_flaky", 100)).await;
            assert_eq!((failed.status, failed.content_type.as_str()), (503, "application/problem+json"));
        }
        assert_eq!(answer(lab.charge(key, "tok_flaky", 100)).await.status, 201);
        assert_eq!(answer(lab.charge(key, "tok_flaky", 100)).await.status, 200);
    }
    assert_eq!(lab.totals().await, totals(200, 0, 2, 0, 0));
}

#[tokio::test]
async fn a_slow_card_is_charged_after_its_caller_disconnects() {
    let lab = Lab::start().await;
    let stream = raw_charge(&lab, "k", "tok_slow").await;
    eventually("the slow charge is in progress", async || lab.is_charging("k").await).await;
    drop(stream);
    eventually("the slow charge is captured", async || lab.knows("k").await).await;
    assert_eq!(answer(lab.charge("k", "tok_slow", 100)).await.status, 200);
    assert_eq!(lab.totals().await, totals(100, 0, 1, 0, 0));
}

#[tokio::test]
async fn concurrent_charges_of_a_slow_card_charge_once() {
    let lab = Lab::start().await;
    let answers = join_all((0..8).map(|_| answer(lab.charge("k", "tok_slow", 100)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    assert_eq!(lab.totals().await, totals(100, 0, 1, 0, 0));
}

#[tokio::test]
async fn a_void_overtakes_a_slow_charge() {
    let lab = Lab::start().await;
    let (refused, voided) = tokio::join!(answer(lab.charge("k", "tok_slow", 100)), answer(lab.void("k")));
    assert_eq!(voided.body["outcome"], "voided");
    assert_eq!((refused.status, &refused.body["decline_code"]), (402, &json!("voided")));
    assert_eq!(lab.totals().await, json!(null));
}

/// Sends a charge of 1.00 and does not wait for the answer.
async fn raw_charge(lab: &Lab, key: &str, token: &str) -> TcpStream {
    let body = charge_body(token, 100).to_string();
    let request = format!(
        "POST /v1/charges HTTP/1.1\r\nhost: gateway\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}
