//! Interrupted batches: by the end of the service, or by a crash.

use super::{
    STEP, UNAUDITED, at_once, ended, hold_up, letter, make_letters, remove_cause, shown, start, suite_with_dead_letters,
};
use crate::prelude::*;

const UNDER_WAY: &str = "select count(*) from orders.dead_letter where status = 'REPLAYED'";

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_batch_ends_with_its_service() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let other = suite.start(ORDER).await?;
    let made = make_letters(&suite, &order, 3).await?;
    remove_cause(&suite).await?;
    let held = hold_up(&suite).await?;
    let batch = start(&order, &json!({"filter": {"step": STEP}, "ramp": [1]})).await?;
    suite.becomes(UNDER_WAY, 1).await?;
    let stopping = order.startup.stop.clone();
    let stopped = tokio::spawn(order.stop());
    stopping.cancelled().await;
    held.rollback().await?;
    stopped.await?;
    let batch = shown(&other, &batch).await?;
    ensure!(batch["state"] == "STOPPED" && batch["resolved"] == 1 && batch["replayed"] == 1, "{batch:#}");
    let why = json!({"dead_letter_id": null, "error": "the service was stopped"});
    ensure!(batch["stopped_by"] == why, "{batch:#}");
    for left in &made[1..] {
        let left = letter(&other, left).await?;
        ensure!(left["status"] == "PENDING" && left["replay_count"] == 0, "{left:#}");
    }
    let batch = ended(&other, &start(&other, &json!({"filter": {"step": STEP}})).await?).await?;
    ensure!(batch["state"] == "DONE" && batch["resolved"] == 2, "{batch:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_batch_that_is_silent_for_two_minutes_is_stopped() -> Test {
    let (suite, order, made) = suite_with_dead_letters(3).await?;
    let held = hold_up(&suite).await?;
    let batch = start(&order, &json!({"filter": {"step": STEP}, "ramp": [1]})).await?;
    suite.becomes(UNDER_WAY, 1).await?;
    // As if its replica had been frozen during the first entry.
    suite.execute("update orders.dead_letter_replay set updated_at = now() - interval '3 minutes'").await?;
    let lost = shown(&order, &batch).await?;
    ensure!(lost["state"] == "STOPPED", "{lost:#}");
    ensure!(lost["stopped_by"]["error"].as_str().is_some_and(|e| e.contains("two minutes")), "{lost:#}");
    held.rollback().await?;
    eventually(async || letter(&order, &made[0]).await.is_ok_and(|l| l["status"] == "RESOLVED")).await?;
    // The next batch is behind the lost one, whose progress would have been seen.
    let next = ended(&order, &start(&order, &json!({"filter": {"step": STEP}})).await?).await?;
    ensure!(next["state"] == "DONE" && next["resolved"] == 2 && next["skipped"] == 0, "{next:#}");
    let lost = shown(&order, &batch).await?;
    ensure!(lost["state"] == "STOPPED" && lost["resolved"] == 1 && lost["skipped"] == 0, "{lost:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_entry_left_by_a_crash_can_be_replayed_after_2_minutes() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    make_letters(&suite, &order, 1).await?;
    remove_cause(&suite).await?;
    suite.execute("update orders.dead_letter set status = 'REPLAYED', replay_count = 1, updated_at = now()").await?;
    let batch = start(&order, &json!({"filter": {}})).await?;
    ensure!(batch["selected"] == 0, "{batch:#}");
    suite.execute("update orders.dead_letter set updated_at = now() - interval '3 minutes'").await?;
    let batch = ended(&order, &start(&order, &json!({"filter": {}})).await?).await?;
    ensure!(batch["resolved"] == 1, "{batch:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn batches_are_kept_as_long_as_dead_letters() -> Test {
    let (suite, order) = TestSuite::alone(ORDER).await?;
    let new = start(&order, &json!({"filter": {}})).await?;
    let old = "insert into orders.dead_letter_replay (replay_id, requested_at, requested_by, filter, ids, ramp, state)
        values (gen_random_uuid(), now() - interval '8 days', 'ann', '{}', '{}', '{1}', 'DONE')";
    suite.execute(old).await?;
    let participant = order.app.participant();
    let mut conn = participant.pools.work.acquire().await?;
    run_housekeeping(&mut conn, &participant.settings.messaging).await?;
    let left = order.client.items("/api/admin/dlq/replays").await?;
    ensure!(left.len() == 1 && left[0]["replay_id"] == new["replay_id"], "{left:#?}");
    Ok(())
}
