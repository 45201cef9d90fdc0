//! Automatic replays when the step's breaker closes.

use super::letters;
use crate::prelude::*;

/// Fails payments until the breaker is open and some are dead letters, then lets the breaker close again.
async fn close_again(auto: bool) -> anyhow::Result<(TestSuite, Participants, Vec<Value>)> {
    let resilience = "process_payment.open_for=1s,process_payment.attempts=1";
    let tuning = Tuning { resilience, dead_letter_auto_replay: auto, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    let placed = participants.place_many(20, "tok_visa").await?;
    participants.payment.breaker_until("process_payment", |breaker| breaker["totals"]["opened"] != 0).await?;
    suite.break_gateway(&json!({"error_rate": 0.0})).await?;
    participants.payment.breaker_until("process_payment", |breaker| breaker["state"] == "closed").await?;
    ensure!(!letters(&participants.payment, "").await?.is_empty(), "nothing became a dead letter: this proves nothing");
    Ok((suite, participants, placed))
}

#[suite_tests::test]
async fn dead_letters_are_replayed_when_the_breaker_closes() -> Test {
    let (suite, participants, placed) = close_again(true).await?;
    participants.sagas_become(&placed, "COMPLETED").await?;
    let batches = participants.payment.client.items("/api/admin/dlq/replays").await?;
    let first = batches.last().unwrap();
    ensure!(first["requested_by"] == "breaker" && first["reason"] == "the breaker closed", "{first:#}");
    ensure!(first["filter"] == json!({"step": "process_payment", "reason": "attempts exhausted"}), "{first:#}");
    for letter in letters(&participants.payment, "").await? {
        let letter = super::letter(&participants.payment, &letter).await?;
        ensure!(letter["status"] == "RESOLVED" && letter["actions"][0]["actor"] == "breaker", "{letter:#}");
    }
    suite.audit().await
}

#[suite_tests::test(unaudited = "the dead letters are left")]
async fn automatic_replay_is_off_by_default() -> Test {
    let (_suite, participants, placed) = close_again(false).await?;
    let dead = letters(&participants.payment, "").await?;
    let waits = |order: &&Value| !dead.iter().any(|letter| letter["saga_id"] == order["saga_id"]);
    for order in placed.iter().filter(waits) {
        participants.saga_becomes(order, "COMPLETED").await?;
    }
    let batches = participants.payment.client.items("/api/admin/dlq/replays").await?;
    ensure!(batches.is_empty(), "{batches:#?}");
    for letter in letters(&participants.payment, "").await? {
        ensure!(letter["status"] == "PENDING" && letter["replay_count"] == 0, "{letter:#}");
    }
    Ok(())
}
