//! Batches: a frozen set in growing waves, stopped by the first new failure.

use super::{
    STEP, UNAUDITED, ask, at_once, ended, forbid, hold_up, id, letter, letters, make_letters, remove_cause, sku, start,
    suite_with_dead_letters, unwelcome,
};
use crate::prelude::*;

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_batch_stops_at_the_first_new_failure() -> Test {
    let (suite, order, made) = suite_with_dead_letters(12).await?;
    forbid(&suite, &sku(&made[4])).await?;
    let wanted = json!({"filter": {"step": STEP}, "ramp": [1], "reason": "the view takes them again"});
    let batch = start(&order, &wanted).await?;
    ensure!(batch["selected"] == 12 && batch["waves"] == json!(vec![1; 12]), "{batch:#}");
    ensure!(batch["requested_by"] == "ann", "{batch:#}");
    let batch = ended(&order, &batch).await?;
    ensure!(batch["state"] == "STOPPED" && batch["stopped_by"]["dead_letter_id"] == made[4]["id"], "{batch:#}");
    ensure!(batch["stopped_by"]["error"].as_str().is_some_and(|e| e.contains("forbidden")), "{batch:#}");
    ensure!(batch["replayed"] == 5 && batch["resolved"] == 4 && batch["failed"] == 1, "{batch:#}");
    for (place, made) in made.iter().enumerate() {
        let now = letter(&order, made).await?;
        let (status, replays) = match place {
            0..4 => ("RESOLVED", 1),
            4 => ("PENDING", 1),
            _ => ("PENDING", 0),
        };
        ensure!(now["status"] == status && now["replay_count"] == replays, "entry {place}: {now:#}");
        let actions = now["actions"].as_array().unwrap();
        ensure!(actions.len() == usize::from(place < 5), "entry {place}: {now:#}");
        if let Some(action) = actions.first() {
            let (who, which) = (&action["actor"], &action["replay_id"]);
            ensure!(who == "ann" && which == &batch["replay_id"], "entry {place}: {action}");
            ensure!(action["reason"] == "the view takes them again" && action["action"] == "replay", "{action}");
        } else {
            ensure!(now["updated_at"] == made["updated_at"], "entry {place} was touched: {now:#}");
        }
    }
    ensure!(letter(&order, &made[4]).await?["notes"].as_str().is_some_and(|n| n.contains("forbidden")));

    remove_cause(&suite).await?;
    let batch = ended(&order, &start(&order, &wanted).await?).await?;
    ensure!(batch["state"] == "DONE" && batch["selected"] == 8 && batch["resolved"] == 8, "{batch:#}");
    ensure!(batch.get("stopped_by").is_none(), "{batch:#}");
    ensure!(suite.number("select count(*) from orders.product_view").await? == 12);
    let all = order.client.items("/api/admin/dlq/replays").await?;
    let states: Vec<_> = all.iter().map(|batch| batch["state"].as_str().unwrap()).collect();
    ensure!(states == ["DONE", "STOPPED"], "{all:#?}");
    ensure!(order.client.get("/api/admin/dlq/count").await?.body["count"] == 0);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn waves_grow_along_the_ramp_until_a_failure() -> Test {
    let (suite, order, made) = suite_with_dead_letters(22).await?;
    // The first of the third wave.
    forbid(&suite, &sku(&made[3])).await?;
    let batch = start(&order, &json!({"filter": {"event_type": "ProductCreated"}})).await?;
    ensure!(batch["waves"] == json!([1, 2, 5, 10, 4]), "{batch:#}");
    let batch = ended(&order, &batch).await?;
    ensure!(batch["stopped_by"]["dead_letter_id"] == made[3]["id"] && batch["failed"] == 1, "{batch:#}");
    ensure!((3..=7).contains(&batch["resolved"].as_i64().unwrap()), "{batch:#}");
    for (place, made) in made.iter().enumerate() {
        let now = letter(&order, made).await?;
        match place {
            0..3 => ensure!(now["status"] == "RESOLVED", "entry {place}: {now:#}"),
            // Some entries of the wave that failed were in progress.
            3..8 => {}
            _ => ensure!(now["status"] == "PENDING" && now["replay_count"] == 0, "entry {place}: {now:#}"),
        }
    }
    remove_cause(&suite).await?;
    let left = 22 - batch["resolved"].as_i64().unwrap();
    let batch = start(&order, &json!({"filter": {}, "ramp": [3, 7]})).await?;
    let waves: Vec<i64> = batch["waves"].as_array().unwrap().iter().map(|w| w.as_i64().unwrap()).collect();
    ensure!(waves[..2] == [3, 7] && waves.iter().sum::<i64>() == left, "{batch:#}");
    ensure!(ended(&order, &batch).await?["state"] == "DONE");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_set_is_frozen_except_for_entries_resolved_elsewhere() -> Test {
    let (suite, order, made) = suite_with_dead_letters(4).await?;
    let held = hold_up(&suite).await?;
    let batch = start(&order, &json!({"filter": {"step": STEP}, "ramp": [1]})).await?;
    ensure!(batch["state"] == "RUNNING" && batch["selected"] == 4, "{batch:#}");
    let newcomer = Forged::new(INVENTORY, Uuid::now_v7(), &unwelcome(99)).body("not JSON at all");
    suite.publish(&newcomer).await?;
    eventually(async || letters(&order, "reason=undecodable").await.is_ok_and(|l| l.len() == 1)).await?;
    let (path, reason) = (format!("/api/admin/dlq/{}", id(&made[2])), json!({"reason": "not needed"}));
    let discarded = order.client.delete(&path, &reason).await?.expect(200)?;
    ensure!(discarded["status"] == "DISCARDED" && discarded["notes"] == "not needed", "{discarded:#}");
    held.rollback().await?;
    let batch = ended(&order, &batch).await?;
    ensure!(batch["state"] == "DONE" && batch["resolved"] == 3 && batch["skipped"] == 1, "{batch:#}");
    let ids: Vec<&str> = made.iter().map(id).collect();
    ensure!(batch["dead_letter_ids"] == json!(ids), "{batch:#}");
    ensure!(letter(&order, &made[2]).await?["status"] == "DISCARDED");
    let new = letters(&order, "reason=undecodable").await?;
    ensure!(new[0]["status"] == "PENDING" && new[0]["replay_count"] == 0, "{new:#?}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn two_operators_at_once_replay_each_entry_once() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let other = suite.start(ORDER).await?;
    let made = make_letters(&suite, &order, 20).await?;
    remove_cause(&suite).await?;
    let wanted = json!({"filter": {"step": STEP}, "ramp": [5]});
    let (one, two, single) =
        tokio::try_join!(start(&order, &wanted), start(&other, &wanted), super::replay_one(&order, &made[19]))?;
    let single = i64::from(single.status == 200);
    let (one, two) = (ended(&order, &one).await?, ended(&other, &two).await?);
    let sum = |field: &str| one[field].as_i64().unwrap() + two[field].as_i64().unwrap();
    ensure!(one["state"] == "DONE" && two["state"] == "DONE" && sum("failed") == 0, "{one:#} {two:#}");
    ensure!(sum("resolved") + single == 20, "{one:#} {two:#}");
    ensure!(sum("resolved") + sum("skipped") == sum("selected"), "{one:#} {two:#}");
    for made in &made {
        let now = letter(&order, made).await?;
        ensure!(now["status"] == "RESOLVED" && now["replay_count"] == 1, "{now:#}");
        ensure!(now["actions"].as_array().unwrap().len() == 1, "{now:#}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn the_filter_and_the_limit_select_entries() -> Test {
    let (suite, order) = TestSuite::alone_with(at_once(), ORDER).await?;
    let made = make_letters(&suite, &order, 3).await?;
    let selects = async |filter: Value| -> anyhow::Result<Vec<Value>> {
        let run = ask(&order, &json!({"filter": filter, "dry_run": true})).await?.expect(200)?;
        Ok(run["items"].as_array().unwrap().iter().map(|item| item["dead_letter_id"].clone()).collect())
    };
    let ids = |letters: &[Value]| letters.iter().map(|l| l["id"].clone()).collect::<Vec<_>>();
    let third = made[2]["created_at"].clone();
    ensure!(selects(json!({})).await? == ids(&made));
    ensure!(selects(json!({"event_type": "ProductCreated.v1", "reason": "attempts exhausted"})).await? == ids(&made));
    ensure!(selects(json!({"created_before": third})).await? == ids(&made[..2]));
    ensure!(selects(json!({"saga_id": made[1]["saga_id"]})).await? == ids(&made[1..2]));
    for nothing in [json!({"reason": "poison"}), json!({"step": "confirm_order"}), json!({"event_type": "Product"})] {
        ensure!(selects(nothing.clone()).await?.is_empty(), "{nothing}");
    }
    let encoded = third.as_str().unwrap().replace('+', "%2B");
    ensure!(ids(&letters(&order, &format!("created_before={encoded}")).await?) == ids(&made[..2]));
    ensure!(letters(&order, "reason=poison").await?.is_empty());
    let batch = ended(&order, &start(&order, &json!({"filter": {}, "limit": 2})).await?).await?;
    ensure!(batch["selected"] == 2 && batch["dead_letter_ids"] == json!(ids(&made[..2])), "{batch:#}");
    for refused in [
        json!({}),
        json!({"filter": {"sku": "A"}}),
        json!({"filter": {}, "limit": 0}),
        json!({"filter": {}, "ramp": []}),
        json!({"filter": {}, "ramp": [1, 0]}),
        json!({"filter": {"created_before": "yesterday"}}),
    ] {
        let answer = ask(&order, &refused).await?;
        ensure!(answer.status == 422, "{refused}: {answer:?}");
    }
    ensure!(ask(&order, &json!({"filter": {"step": "unknown_step"}})).await?.expect(202)?["selected"] == 0);
    Ok(())
}
