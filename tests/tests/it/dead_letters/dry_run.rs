//! Dry runs: they predict the outcome of a replay, and leave only their own record behind.

use std::collections::BTreeMap;

use faults::{FaultSpec, Kind};

use super::{ask, ended, letter, letters, publish_again, start};
use crate::{faults::EVENT_POINTS, prelude::*, sources};

/// Tables that every running service writes repeatedly, and the record of requests to the administration, of dry runs, too.
const HEARTBEATS_AND_RECORD: [&str; 4] = ["lease", "relay_lease", "coordinator", "operator_action"];

/// Every table of every schema with its number of rows and a checksum over them.
async fn tables(suite: &TestSuite) -> anyhow::Result<BTreeMap<String, (i64, String)>> {
    let names: Vec<(String, String)> = sqlx::query_as(
        "select table_schema::text, table_name::text from information_schema.tables
        where table_schema in ('orders', 'inventory', 'payment', 'saga') and table_type = 'BASE TABLE'",
    )
    .fetch_all(&suite.pool)
    .await?;
    let mut tables = BTreeMap::new();
    for (schema, table) in names.into_iter().filter(|(_, table)| !HEARTBEATS_AND_RECORD.contains(&table.as_str())) {
        let sql = format!(
            "select count(*), md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from {schema}.{table} t"
        );
        let sums = sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_one(&suite.pool).await?;
        tables.insert(format!("{schema}.{table}"), sums);
    }
    ensure!(tables.len() > 60, "only {} tables were found", tables.len());
    Ok(tables)
}

/// The counters of messaging, and the states of the breakers.
async fn counts(replica: &Replica) -> anyhow::Result<(Vec<String>, Value)> {
    let text = replica.startup.metrics.encode()?;
    let ours = ["inbox_", "outbox_", "step_", "dead_letter", "refusal", "breaker_"];
    // The dry run itself is counted, and gauges follow the tables.
    let counted = |line: &&str| line.contains("_total") && !line.starts_with("dead_letter_actions");
    let of_ours = |line: &&str| ours.iter().any(|name| line.starts_with(name));
    let lines = text.lines().filter(counted).filter(of_ours).map(str::to_owned);
    let breakers = replica.client.items("/api/admin/breakers").await?;
    Ok((lines.collect(), breakers.iter().map(|breaker| breaker["totals"].clone()).collect()))
}

/// Waits for the dead letter of an order's event.
async fn letter_of(replica: &Replica, step: &str, order: &Value) -> anyhow::Result<Value> {
    let query = format!("step={step}&saga_id={}", order["saga_id"].as_str().unwrap());
    eventually(async || letters(replica, &query).await.map(|mut found| found.pop())).await
}

/// Five orders with a dead letter of `confirm_order` each except the last, one for each predictable outcome; and one whose
/// refund is a dead letter, although no charge was made.
struct Cases {
    /// Its cause is removed.
    applies: Value,
    /// Its event came again and was applied.
    applied: Value,
    /// It was cancelled in the meantime.
    refused: Value,
    /// Its cause persists.
    fails: Value,
    /// The dead letter is its charge, whose cause is removed.
    calls: Value,
    /// There was no stock, so there is no payment to refund: it gets its tombstone, and its key is voided.
    unpaid: Value,
}

async fn make_cases(suite: &TestSuite, participants: &Participants) -> anyhow::Result<Cases> {
    suite.forbid("orders.customer_order", "status <> 'CONFIRMED'").await?;
    let mut confirm = Vec::new();
    for _ in 0..4 {
        let order = participants.place(&[("A", 1)], "tok_visa").await?;
        letter_of(&participants.order, "confirm_order", &order).await?;
        confirm.push(order);
    }
    let [applies, applied, refused, fails] = confirm.try_into().map_err(|_| anyhow::anyhow!("four orders"))?;
    suite.allow("orders.customer_order").await?;
    publish_again(suite, &letter_of(&participants.order, "confirm_order", &applied).await?).await?;
    participants.saga_becomes(&applied, "COMPLETED").await?;
    ensure!(participants.cancel(&refused).await? == 202);
    participants.saga_becomes(&refused, "COMPENSATED").await?;
    let still = format!("status <> 'CONFIRMED' or order_id <> '{}'", fails["order_id"].as_str().unwrap());
    suite.forbid("orders.customer_order", &still).await?;

    suite.forbid("payment.payment", "false").await?;
    let calls = participants.place(&[("A", 1)], "tok_visa").await?;
    letter_of(&participants.payment, "process_payment", &calls).await?;
    let unpaid = participants.place(&[("RARE", 2)], "tok_visa").await?;
    letter_of(&participants.payment, "refund_payment", &unpaid).await?;
    suite.allow("payment.payment").await?;
    suite.becomes("select count(*) from audit.outbox", 0).await?;
    Ok(Cases { applies, applied, refused, fails, calls, unpaid })
}

/// A dry run of everything that is pending; its predictions, by saga.
async fn predict(replica: &Replica) -> anyhow::Result<BTreeMap<String, Value>> {
    let run = ask(replica, &json!({"filter": {}, "dry_run": true, "reason": "what if"})).await?.expect(200)?;
    ensure!(run["dry_run"] == true, "{run:#}");
    let mut by_saga = BTreeMap::new();
    for item in run["items"].as_array().context("no items")? {
        let letter = letter(replica, &json!({"id": item["dead_letter_id"]})).await?;
        ensure!(letter["event_id"] == item["event_id"] && letter["step"] == item["step"], "{item:#}");
        by_saga.insert(letter["saga_id"].as_str().context("no saga")?.to_owned(), item.clone());
    }
    ensure!(run["selected"] == by_saga.len(), "{run:#}");
    Ok(by_saga)
}

#[suite_tests::test]
async fn a_dry_run_predicts_a_replay_and_changes_nothing() -> Test {
    let tuning = Tuning {
        resilience: "confirm_order.attempts=1,process_payment.attempts=1,refund_payment.attempts=1,\
            confirm_order.window=100,confirm_order.min_calls=100",
        saga_deadline: Duration::from_secs(600),
        compensation_deadline: Duration::from_secs(600),
        ..Tuning::default()
    };
    let (suite, participants) = TestSuite::faulty(tuning, 100, 100).await?;
    participants.sell("RARE", 100, 1).await?;
    let cases = make_cases(&suite, &participants).await?;
    // Armed, each counts its passes.
    for replica in [&participants.order, &participants.payment] {
        for point in EVENT_POINTS {
            replica.faults.arm(FaultSpec::new(point, Kind::Error), "test")?;
        }
    }
    let before = (tables(&suite).await?, counts(&participants.order).await?, counts(&participants.payment).await?);
    let totals = suite.gateway_client().get("/v1/totals").await?.expect(200)?;
    let (confirm, pay) = (predict(&participants.order).await?, predict(&participants.payment).await?);

    let mut after = (tables(&suite).await?, counts(&participants.order).await?, counts(&participants.payment).await?);
    for (table, entries) in [("orders.dead_letter_action", 4), ("payment.dead_letter_action", 2)] {
        let kept = after.0.insert(table.to_owned(), before.0[table].clone());
        ensure!(kept.is_some_and(|(rows, _)| rows == before.0[table].0 + entries), "{table}: not everything is kept");
    }
    let changed: Vec<_> = after.0.iter().filter(|(table, sums)| before.0.get(*table) != Some(sums)).collect();
    ensure!(changed.is_empty() && before.0.len() == after.0.len(), "these tables were changed: {changed:?}");
    ensure!((&before.1, &before.2) == (&after.1, &after.2), "something was counted: {before:#?} {after:#?}");
    ensure!(suite.gateway_client().get("/v1/totals").await?.expect(200)? == totals);
    for armed in participants.order.faults.armed().into_iter().chain(participants.payment.faults.armed()) {
        ensure!(armed.passes == 0, "{} was passed", armed.spec.point.as_str());
    }

    for (order, predicted, outcome, emits, words) in [
        (&cases.applies, &confirm, "would_apply", json!(["OrderConfirmed.v1"]), ""),
        (&cases.applied, &confirm, "duplicate", json!([]), ""),
        (&cases.refused, &confirm, "refused_by_state", json!([]), "the order was cancelled first"),
        (&cases.fails, &confirm, "would_fail", json!([]), "forbidden"),
        (&cases.calls, &pay, "would_call", json!([]), "card processor"),
        (&cases.unpaid, &pay, "would_call", json!([]), ""),
    ] {
        let item = predicted.get(order["saga_id"].as_str().unwrap()).context("an entry was left out")?;
        ensure!(item["outcome"] == outcome && item["emits"] == emits, "{outcome}: {predicted:#?}");
        ensure!(item["detail"].as_str().unwrap().contains(words), "{outcome}: {predicted:#?}");
    }

    participants.order.faults.disarm_all();
    participants.payment.faults.disarm_all();
    predictions_come_true(&suite, &participants, &cases).await
}

async fn predictions_come_true(suite: &TestSuite, participants: &Participants, cases: &Cases) -> Test {
    let wanted = json!({"filter": {}, "ramp": [1]});
    let batch = ended(&participants.payment, &start(&participants.payment, &wanted).await?).await?;
    ensure!(batch["state"] == "DONE" && batch["resolved"] == 2, "{batch:#}");
    participants.saga_becomes(&cases.unpaid, "COMPENSATED").await?;
    let batch = ended(&participants.order, &start(&participants.order, &wanted).await?).await?;
    let failed = letter_of(&participants.order, "confirm_order", &cases.fails).await?;
    ensure!(batch["state"] == "STOPPED" && batch["resolved"] == 3, "{batch:#}");
    ensure!(batch["stopped_by"]["dead_letter_id"] == failed["id"], "{batch:#}");
    suite.allow("orders.customer_order").await?;
    ensure!(super::replay_one(&participants.order, &failed).await?.expect(200)?["status"] == "RESOLVED");
    let history = letter(&participants.order, &failed).await?;
    let actions: Vec<_> = history["actions"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    ensure!(actions == ["dry run", "replay", "replay"], "{history:#}");
    let recorded = &history["actions"][0];
    ensure!(recorded["actor"] == "ann" && recorded["reason"] == "what if", "{recorded:#}");
    ensure!(recorded["replay_id"].is_null(), "{recorded:#}");
    ensure!(recorded["outcome"].as_str().is_some_and(|o| o.starts_with("would_fail: ")), "{recorded:#}");
    participants.sagas_become([&cases.applies, &cases.applied, &cases.fails, &cases.calls], "COMPLETED").await?;
    ensure!(participants.saga_becomes(&cases.refused, "COMPENSATED").await?["status"] == "COMPENSATED");
    suite.audit().await
}

#[suite_tests::test(unaudited = "the event is made up, and its dead letter left")]
async fn an_unreadable_event_would_fail() -> Test {
    let (suite, payment) = TestSuite::alone(PAYMENT).await?;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("ce-id", Uuid::now_v7().to_string());
    headers.insert("ce-type", "StockReserved.v9");
    suite.publish(&Forged::bytes("events.inventory.StockReserved", headers, b"{}".into())).await?;
    eventually(async || {
        suite.end_the_wait_for_newer_replicas().await.is_ok() && letters(&payment, "").await.is_ok_and(|l| l.len() == 1)
    })
    .await?;
    let run = ask(&payment, &json!({"filter": {"reason": "unknown version"}, "dry_run": true})).await?.expect(200)?;
    ensure!(run["items"][0]["outcome"] == "would_fail", "{run:#}");
    ensure!(run["items"][0]["detail"].as_str().is_some_and(|d| d.contains("StockReserved.v9")), "{run:#}");
    // Another build may read it, so it keeps all its replays.
    let path = format!("/api/admin/dlq/{}/replay", letters(&payment, "").await?[0]["id"].as_str().unwrap_or_default());
    let replayed = payment.client.act(&path).await?;
    ensure!(replayed["status"] == "PENDING" && replayed["replay_count"] == 0, "{replayed:#}");
    Ok(())
}

/// A step that writes outside the unit of work would write in a dry run, too.
#[test]
fn no_step_uses_the_database_outside_its_unit_of_work() -> Test {
    let rooms = ["steps.rs", "placement.rs", "compensation.rs", "forgotten.rs"].map(|room| format!("/src/{room}"));
    let mut files = sources::services()?;
    files.retain(|(file, _)| rooms.iter().any(|room| file.ends_with(room)));
    ensure!(files.len() >= contracts::SERVICES.len(), "only {} files", files.len());
    for file in ["step.rs", "three_phases.rs"].map(|file| format!("shared/saga_store/src/{file}")) {
        files.push((file.clone(), sources::read(&file)?));
    }
    for (file, text) in files {
        ensure!(!text.contains("pool"), "{file} uses a pool");
        ensure!(!text.contains("spawn"), "{file} works in tasks of its own");
    }
    Ok(())
}
