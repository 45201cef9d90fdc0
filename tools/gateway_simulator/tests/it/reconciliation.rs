//! The comparison of ledgers.

use serde_json::{Value, json};

use crate::support::{Lab, answer, totals};

#[tokio::test]
async fn changed_charges_are_listed_and_left_out_of_the_sums() {
    let lab = Lab::start().await;
    lab.charged("before", 500).await;
    let reconcile = async |body: Value| answer(lab.post("/v1/reconciliations").json(&body)).await;
    let before = reconcile(json!({})).await.body;
    assert_eq!((&before["position"], &before["totals"]), (&json!(1), &json!([totals(500, 0, 1, 0, 0)])));
    let charge_id = lab.charged("after", 70).await;
    let statement = reconcile(json!({"since": 1, "keys": ["before", "never seen"]})).await.body;
    assert_eq!((&statement["position"], &statement["totals"]), (&json!(2), &before["totals"]));
    assert_eq!(statement["changed"][0]["charge_id"], *charge_id);
    assert_eq!(statement["outcomes"][0]["idempotency_key"], "before");
    assert_eq!(statement["outcomes"].as_array().map(Vec::len), Some(1));
    assert_eq!(reconcile(json!({"since": 3})).await.status, 422);
}

#[tokio::test]
async fn a_request_may_have_thousands_of_keys() {
    let lab = Lab::start().await;
    let keys: Vec<String> = (0..20_000).map(|n| format!("{n:036}")).collect();
    let statement = answer(lab.post("/v1/reconciliations").json(&json!({"without": keys, "keys": keys}))).await;
    assert_eq!((statement.status, &statement.body["outcomes"]), (200, &json!([])));
}
