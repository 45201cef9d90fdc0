//! Dry runs: they say what a replay would come to, and leave nothing behind but that somebody has asked.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use contracts::PAYMENT;
use faults::{FaultPoint, FaultSpec, Kind};
use serde_json::{Value, json};
use suite_tests::{Dancers, Replica, Stage, Tuning};
use testkit::eventually;

use super::{LIMIT, ask, ended, letter, letters, publish_again, start};
use crate::Test;

/// What everybody who runs writes again and again, whatever else happens.
const HEARTBEATS: [&str; 2] = ["lease", "relay_lease"];

/// Where a fault could hit the work on an event. Armed, each counts how often the point is passed.
const POINTS: [FaultPoint; 7] = [
    FaultPoint::BeforeInboxClaim,
    FaultPoint::InStep,
    FaultPoint::GatewayCall,
    FaultPoint::AfterChargeBeforeRecord,
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommitBeforePublish,
    FaultPoint::AfterCommitBeforeAck,
];

/// Every table of every schema with its number of rows and a checksum over them.
async fn tables(stage: &Stage) -> anyhow::Result<BTreeMap<String, (i64, String)>> {
    let names: Vec<(String, String)> = sqlx::query_as(
        "select table_schema::text, table_name::text from information_schema.tables
        where table_schema in ('orders', 'inventory', 'payment', 'saga') and table_type = 'BASE TABLE'",
    )
    .fetch_all(&stage.pool)
    .await?;
    let mut tables = BTreeMap::new();
    for (schema, table) in names.into_iter().filter(|(_, table)| !HEARTBEATS.contains(&table.as_str())) {
        let sql = format!(
            "select count(*), md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from {schema}.{table} t"
        );
        let sums = sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_one(&stage.pool).await?;
        tables.insert(format!("{schema}.{table}"), sums);
    }
    ensure!(tables.len() > 60, "only {} tables were found", tables.len());
    Ok(tables)
}

/// What messaging counts, and what the breakers do.
async fn counts(replica: &Replica) -> anyhow::Result<(Vec<String>, Value)> {
    let text = replica.startup.metrics.encode()?;
    let ours = ["inbox_", "outbox_", "step_", "dead_letter", "refusal", "breaker_"];
    // The dry run itself is counted, and gauges are read from the tables as time goes by.
    let counted = |line: &&str| line.contains("_total") && !line.starts_with("dead_letter_actions");
    let of_ours = |line: &&str| ours.iter().any(|name| line.starts_with(name));
    let lines = text.lines().filter(counted).filter(of_ours).map(str::to_owned);
    let breakers = replica.client.get("/api/admin/breakers").await?.expect(200)?;
    let totals = breakers["items"].as_array().context("no breakers")?.iter().map(|b| b["totals"].clone());
    Ok((lines.collect(), totals.collect()))
}

/// Makes the database refuse something, until [`allow`].
async fn forbid(stage: &Stage, table: &'static str, unless: &str) -> Test {
    let sql = format!("alter table {table} add constraint forbidden check ({unless}) not valid");
    stage.execute(sql).await?;
    Ok(())
}

async fn allow(stage: &Stage, table: &'static str) -> Test {
    let sql = format!("alter table {table} drop constraint forbidden");
    stage.execute(sql).await?;
    Ok(())
}

/// Waits for the dead letter that an order's event became.
async fn letter_of(replica: &Replica, step: &str, order: &Value) -> anyhow::Result<Value> {
    let query = format!("step={step}&saga_id={}", order["saga_id"].as_str().unwrap());
    eventually(LIMIT, async || letters(replica, &query).await.map(|mut found| found.pop())).await
}

/// Five orders with a dead letter of `confirm_order` each but for the last, one for each thing that can be foreseen;
/// and one whose refund is a dead letter, though nothing was ever charged.
struct Cases {
    /// Its cause is gone.
    applies: Value,
    /// Its event came again and was applied.
    applied: Value,
    /// It was cancelled meanwhile.
    refused: Value,
    /// Its cause goes on.
    fails: Value,
    /// Its charge is what became a dead letter, and its cause is gone.
    calls: Value,
    /// There was no stock, so there is no payment to refund: it gets its tombstone, and its key is voided.
    unpaid: Value,
}

async fn make_cases(stage: &Stage, suite: &Dancers) -> anyhow::Result<Cases> {
    forbid(stage, "orders.customer_order", "status <> 'CONFIRMED'").await?;
    let mut confirm = Vec::new();
    for _ in 0..4 {
        let order = suite.place(&[("A", 1)], "tok_visa").await?;
        letter_of(&suite.order, "confirm_order", &order).await?;
        confirm.push(order);
    }
    let [applies, applied, refused, fails] = confirm.try_into().map_err(|_| anyhow::anyhow!("four orders"))?;
    allow(stage, "orders.customer_order").await?;
    publish_again(stage, &letter_of(&suite.order, "confirm_order", &applied).await?).await?;
    suite.saga_becomes(&applied, "COMPLETED").await?;
    ensure!(suite.cancel(&refused).await? == 202);
    suite.saga_becomes(&refused, "COMPENSATED").await?;
    let still = format!("status <> 'CONFIRMED' or order_id <> '{}'", fails["order_id"].as_str().unwrap());
    forbid(stage, "orders.customer_order", &still).await?;

    forbid(stage, "payment.payment", "false").await?;
    let calls = suite.place(&[("A", 1)], "tok_visa").await?;
    letter_of(&suite.payment, "process_payment", &calls).await?;
    let unpaid = suite.place(&[("RARE", 2)], "tok_visa").await?;
    letter_of(&suite.payment, "refund_payment", &unpaid).await?;
    allow(stage, "payment.payment").await?;
    let waiting = "select count(*) from audit.outbox";
    stage.becomes(waiting, 0).await?;
    Ok(Cases { applies, applied, refused, fails, calls, unpaid })
}

/// A dry run of everything that waits; what it says, by saga.
async fn foresee(replica: &Replica) -> anyhow::Result<BTreeMap<String, Value>> {
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

fn of<'a>(items: &'a BTreeMap<String, Value>, order: &Value) -> anyhow::Result<(&'a str, &'a Value, &'a str)> {
    let item = items.get(order["saga_id"].as_str().unwrap()).context("an entry was left out")?;
    Ok((item["outcome"].as_str().unwrap(), &item["emits"], item["detail"].as_str().unwrap()))
}

#[suite_tests::test]
async fn a_dry_run_foresees_a_replay_and_changes_nothing() -> Test {
    let tuning = Tuning {
        resilience: "confirm_order.attempts=1,process_payment.attempts=1,refund_payment.attempts=1,\
            confirm_order.window=100,confirm_order.min_calls=100",
        saga_deadline: std::time::Duration::from_secs(600),
        compensation_deadline: std::time::Duration::from_secs(600),
        ..Tuning::default()
    };
    let (stage, suite) = Stage::faulty(tuning, 100, 100).await?;
    suite.sell("RARE", 100, 1).await?;
    let cases = make_cases(&stage, &suite).await?;
    for replica in [&suite.order, &suite.payment] {
        for point in POINTS {
            replica.faults.arm(FaultSpec::new(point, Kind::Error), "test")?;
        }
    }
    let before = (tables(&stage).await?, counts(&suite.order).await?, counts(&suite.payment).await?);
    let totals = stage.gateway_client().get("/v1/totals").await?.expect(200)?;
    let (confirm, pay) = (foresee(&suite.order).await?, foresee(&suite.payment).await?);

    let mut after = (tables(&stage).await?, counts(&suite.order).await?, counts(&suite.payment).await?);
    for (table, entries) in [("orders.dead_letter_action", 4), ("payment.dead_letter_action", 2)] {
        let kept = after.0.insert(table.to_owned(), before.0[table].clone());
        ensure!(kept.is_some_and(|(rows, _)| rows == before.0[table].0 + entries), "{table}: not everything is kept");
    }
    let changed: Vec<_> = after.0.iter().filter(|(table, sums)| before.0.get(*table) != Some(sums)).collect();
    ensure!(changed.is_empty() && before.0.len() == after.0.len(), "these tables were changed: {changed:?}");
    ensure!((&before.1, &before.2) == (&after.1, &after.2), "something was counted: {before:#?} {after:#?}");
    ensure!(stage.gateway_client().get("/v1/totals").await?.expect(200)? == totals);
    for armed in suite.order.faults.armed().into_iter().chain(suite.payment.faults.armed()) {
        ensure!(armed.passes == 0, "{} was passed", armed.spec.point.as_str());
    }

    let (outcome, emits, _) = of(&confirm, &cases.applies)?;
    ensure!(outcome == "would_apply" && emits == &json!(["OrderConfirmed.v1"]), "{confirm:#?}");
    let (outcome, emits, _) = of(&confirm, &cases.applied)?;
    ensure!(outcome == "duplicate" && emits == &json!([]), "{confirm:#?}");
    let (outcome, emits, detail) = of(&confirm, &cases.refused)?;
    ensure!(outcome == "refused_by_state" && emits == &json!([]), "{confirm:#?}");
    ensure!(detail == "the order was cancelled first", "{detail}");
    let (outcome, emits, detail) = of(&confirm, &cases.fails)?;
    ensure!(outcome == "would_fail" && emits == &json!([]) && detail.contains("forbidden"), "{confirm:#?}");
    let (outcome, emits, detail) = of(&pay, &cases.calls)?;
    ensure!(outcome == "would_call" && emits == &json!([]) && detail.contains("card processor"), "{pay:#?}");
    let (outcome, emits, _) = of(&pay, &cases.unpaid)?;
    ensure!(outcome == "would_call" && emits == &json!([]), "{pay:#?}");

    suite.order.faults.disarm_all();
    suite.payment.faults.disarm_all();
    what_was_foreseen_comes_true(&stage, &suite, &cases).await
}

async fn what_was_foreseen_comes_true(stage: &Stage, suite: &Dancers, cases: &Cases) -> Test {
    let wanted = json!({"filter": {}, "ramp": [1]});
    let batch = ended(&suite.payment, &start(&suite.payment, &wanted).await?).await?;
    ensure!(batch["state"] == "DONE" && batch["resolved"] == 2, "{batch:#}");
    suite.saga_becomes(&cases.unpaid, "COMPENSATED").await?;
    let batch = ended(&suite.order, &start(&suite.order, &wanted).await?).await?;
    let failed = letter_of(&suite.order, "confirm_order", &cases.fails).await?;
    ensure!(batch["state"] == "STOPPED" && batch["resolved"] == 3, "{batch:#}");
    ensure!(batch["stopped_by"]["dead_letter_id"] == failed["id"], "{batch:#}");
    allow(stage, "orders.customer_order").await?;
    ensure!(super::replay_one(&suite.order, &failed).await?.expect(200)?["status"] == "RESOLVED");
    let history = letter(&suite.order, &failed).await?;
    let actions: Vec<_> = history["actions"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    ensure!(actions == ["dry run", "replay", "replay"], "{history:#}");
    let asked = &history["actions"][0];
    ensure!(asked["actor"] == "ann" && asked["reason"] == "what if" && asked["replay_id"].is_null(), "{asked:#}");
    ensure!(asked["outcome"].as_str().is_some_and(|o| o.starts_with("would_fail: ")), "{asked:#}");
    suite.sagas_become([&cases.applies, &cases.applied, &cases.fails, &cases.calls], "COMPLETED").await?;
    ensure!(suite.saga_becomes(&cases.refused, "COMPENSATED").await?["status"] == "COMPENSATED");
    stage.audit().await
}

#[suite_tests::test(unaudited = "the event is made up, and its dead letter left")]
async fn what_cannot_be_read_would_fail() -> Test {
    let (stage, payment) = Stage::alone(PAYMENT).await?;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("ce-id", uuid::Uuid::now_v7().to_string());
    headers.insert("ce-type", "StockReserved.v9");
    super::publish(&stage, "events.inventory.StockReserved", headers, "{}").await?;
    eventually(LIMIT, async || {
        stage.end_the_wait_for_newer_replicas().await.is_ok() && letters(&payment, "").await.is_ok_and(|l| l.len() == 1)
    })
    .await?;
    let run = ask(&payment, &json!({"filter": {"reason": "unknown version"}, "dry_run": true})).await?.expect(200)?;
    ensure!(run["items"][0]["outcome"] == "would_fail", "{run:#}");
    ensure!(run["items"][0]["detail"].as_str().is_some_and(|d| d.contains("StockReserved.v9")), "{run:#}");
    // Another build may read it: it keeps all its replays.
    let path = format!("/api/admin/dlq/{}/replay", letters(&payment, "").await?[0]["id"].as_str().unwrap_or_default());
    let replayed = payment.client.post(&path, &json!({})).await?.expect(200)?;
    ensure!(replayed["status"] == "PENDING" && replayed["replay_count"] == 0, "{replayed:#}");
    Ok(())
}

/// A step that writes past the unit of work would write in a dry run, too.
#[test]
fn no_step_reaches_for_the_database_past_its_unit_of_work() -> Test {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let services = contracts::SERVICES.iter().map(|service| root.join("services").join(service.0).join("src"));
    let mut files: Vec<_> = services
        .flat_map(|source| {
            ["steps.rs", "placement.rs", "compensation.rs", "forgotten.rs"].map(|file| source.join(file))
        })
        .filter(|file| file.exists())
        .collect();
    ensure!(files.len() >= contracts::SERVICES.len(), "only {} files", files.len());
    files.extend(["step.rs", "three_phases.rs"].map(|file| root.join("shared/saga_store/src").join(file)));
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        ensure!(!text.contains("pool"), "{} uses a pool", file.display());
        ensure!(!text.contains("spawn"), "{} works in tasks of its own", file.display());
    }
    Ok(())
}
