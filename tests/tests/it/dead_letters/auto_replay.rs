//! Replays that begin by themselves, when the step's breaker closes again.

use anyhow::ensure;
use serde_json::json;
use suite_tests::{Dancers, Stage, Tuning};
use testkit::eventually;

use super::{LIMIT, letters};
use crate::Test;

/// Fails payments until the breaker is open and some are dead letters, then lets the breaker close again.
async fn close_again(auto: bool) -> anyhow::Result<(Stage, Dancers, Vec<serde_json::Value>)> {
    let resilience = "process_payment.open_for=1s,process_payment.attempts=1";
    let tuning = Tuning { resilience, dead_letter_auto_replay: auto, ..Tuning::default() };
    let (stage, suite) = Stage::selling_with(tuning, 100, 1000).await?;
    stage.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = suite.place_many(20, "tok_visa").await?;
    let opened = async || suite.payment.breaker("process_payment").await.is_ok_and(|b| b["totals"]["opened"] != 0);
    eventually(LIMIT, opened).await?;
    stage.break_gateway(&json!({"error_rate": 0.0})).await?;
    let closed = async || suite.payment.breaker("process_payment").await.is_ok_and(|b| b["state"] == "closed");
    eventually(LIMIT, closed).await?;
    ensure!(!letters(&suite.payment, "").await?.is_empty(), "nothing became a dead letter: this proves nothing");
    Ok((stage, suite, placed))
}

#[suite_tests::test]
async fn when_the_breaker_closes_what_the_step_gave_up_on_is_replayed() -> Test {
    let (stage, suite, placed) = close_again(true).await?;
    suite.sagas_become(&placed, "COMPLETED").await?;
    let batches = suite.payment.client.get("/api/admin/dlq/replays").await?.expect(200)?;
    let first = batches["items"].as_array().unwrap().last().unwrap();
    ensure!(first["requested_by"] == "breaker" && first["reason"] == "the breaker closed", "{first:#}");
    ensure!(first["filter"] == json!({"step": "process_payment", "reason": "attempts exhausted"}), "{first:#}");
    for letter in letters(&suite.payment, "").await? {
        let letter = super::letter(&suite.payment, &letter).await?;
        ensure!(letter["status"] == "RESOLVED" && letter["actions"][0]["actor"] == "breaker", "{letter:#}");
    }
    stage.audit().await
}

#[suite_tests::test(unaudited = "the dead letters are left")]
async fn nothing_is_replayed_by_itself_unless_somebody_asked_for_it() -> Test {
    let (_stage, suite, placed) = close_again(false).await?;
    let dead = letters(&suite.payment, "").await?;
    let waits = |order: &&serde_json::Value| !dead.iter().any(|letter| letter["saga_id"] == order["saga_id"]);
    for order in placed.iter().filter(waits) {
        suite.saga_becomes(order, "COMPLETED").await?;
    }
    let batches = suite.payment.client.get("/api/admin/dlq/replays").await?.expect(200)?;
    ensure!(batches["items"] == json!([]), "{batches:#}");
    for letter in letters(&suite.payment, "").await? {
        ensure!(letter["status"] == "PENDING" && letter["replay_count"] == 0, "{letter:#}");
    }
    Ok(())
}
