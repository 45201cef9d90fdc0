//! `GET /api/orders/{id}/explain`: every way an order can wait, each brought about and told as what it is, with what
//! an operator can do about it; and that doing so helps.

mod clock;
mod history;
mod publication;
mod taking;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use contracts::order_fulfillment::SAGA;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{Dancers, Replica, Stage};
use testkit::eventually;

use crate::Test;

const LIMIT: Duration = Duration::from_secs(20);

async fn explained(order: &Replica, placed: &Value) -> anyhow::Result<Value> {
    let path = format!("/api/orders/{}/explain", placed["order_id"].as_str().context("no order")?);
    order.client.get(&path).await?.expect(200)
}

/// The findings' kinds, in their order.
fn kinds(explanation: &Value) -> Vec<&str> {
    explanation["findings"].as_array().into_iter().flatten().filter_map(|f| f["kind"].as_str()).collect()
}

fn finding(explanation: &Value, kind: &str) -> Option<Value> {
    explanation["findings"].as_array().into_iter().flatten().find(|f| f["kind"] == kind).cloned()
}

/// Waits until the explanation has a finding of this kind, and returns both.
async fn found(order: &Replica, placed: &Value, kind: &str) -> anyhow::Result<(Value, Value)> {
    eventually(LIMIT, async || {
        let explanation = explained(order, placed).await?;
        let found = finding(&explanation, kind).with_context(|| format!("there is no {kind}: {explanation:#}"))?;
        anyhow::Ok(Some((explanation, found)))
    })
    .await
}

/// The steps that the explanation says are awaited, with their services.
fn awaited(explanation: &Value) -> Vec<String> {
    let steps = explanation["waiting_for"].as_array().into_iter().flatten();
    steps.map(|s| format!("{} of {}", s["step"].as_str().unwrap(), s["service"].as_str().unwrap())).collect()
}

fn says(finding: &Value, words: &[&str]) -> Test {
    let what = finding["what"].as_str().unwrap_or_default();
    ensure!(what.ends_with('.') && !what.contains(".."), "this is no sentence: {what}");
    for word in words {
        ensure!(what.contains(word), "{word:?} is not in: {what}");
    }
    Ok(())
}

/// Does what the finding's remedy says, at the service that it names.
async fn follow(finding: &Value, service: &Replica) -> Test {
    let remedy = &finding["remedy"];
    ensure!(remedy["service"] == service.service.0, "the remedy is to be found elsewhere: {finding:#}");
    let (method, path) = remedy["request"].as_str().and_then(|r| r.split_once(' ')).context("no request")?;
    let method: Method = method.parse()?;
    let request = service.client.request(method.clone(), path);
    let request = if method == Method::GET { request } else { request.json(&json!({})) };
    service.client.send(request).await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn there_is_a_test_for_every_way_of_waiting_that_the_document_lists() -> Test {
    // Not audited: nothing is ordered.
    let (_stage, order) = Stage::alone(contracts::ORDER).await?;
    let document = serde_json::to_value(&order.openapi)?;
    let listed = document["components"]["schemas"]["FindingKind"].clone();
    // Kinds with a description of their own are alternatives, each with one value.
    let mut kinds = BTreeSet::new();
    collect_values(&listed, &mut kinds);
    ensure!(kinds.len() >= 24, "{kinds:?} of {listed:#}");
    let tests = [
        include_str!("explain/clock.rs"),
        include_str!("explain/history.rs"),
        include_str!("explain/publication.rs"),
        include_str!("explain/taking.rs"),
    ]
    .concat();
    let untested: Vec<_> = kinds.iter().filter(|kind| !tests.contains(&format!("\"{kind}\""))).collect();
    ensure!(untested.is_empty(), "no test brings about {untested:?}");
    Ok(())
}

fn collect_values(schema: &Value, into: &mut BTreeSet<String>) {
    let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    into.extend(values.filter_map(|value| value.as_str().map(str::to_owned)));
    for alternative in schema["oneOf"].as_array().into_iter().flatten() {
        collect_values(alternative, into);
    }
}

/// Walks the saga's table: an order is stopped before each step that an event sets in motion, and says which it is.
#[tokio::test]
async fn whichever_step_an_order_waits_for_is_named_with_its_event_and_its_service() -> Test {
    let (stage, suite) = Stage::selling(100, 1_000).await?;
    suite.sell("RARE", 100, 1).await?;
    for step in SAGA.steps.iter().filter(|step| step.consumes().is_some()) {
        let service = step.service.context("no service")?;
        let replica = suite.all().find(|r| r.service == service);
        let replica = replica.context("no replica")?;
        stage.pause(replica, step.name).await?;
        let placed = bring_to(&stage, &suite, step.name).await.with_context(|| format!("going to {}", step.name))?;
        let (explanation, paused) = eventually(LIMIT, async || {
            let (explanation, paused) = found(&suite.order, &placed, "consumer_paused").await?;
            ensure!(awaited(&explanation) == [format!("{} of {service}", step.name)], "{explanation:#}");
            anyhow::Ok(Some((explanation, paused)))
        })
        .await?;
        ensure!(explanation["waiting_for"][0]["on"] == step.consumes().unwrap().name, "{explanation:#}");
        ensure!(explanation["deadline"].is_string() && explanation["at_deadline"].is_string(), "{explanation:#}");
        let summary = explanation["summary"].as_str().unwrap_or_default();
        ensure!(summary.contains(step.name), "the summary does not name {}: {summary}", step.name);
        follow(&paused, replica).await?;
        ended(&suite, &placed).await?;
    }
    stage.audit().await
}

/// Places an order that goes up to this step.
async fn bring_to(stage: &Stage, suite: &Dancers, step: &str) -> anyhow::Result<Value> {
    Ok(match step {
        "cancel_unfillable_order" => suite.place(&[("RARE", 2)], "tok_visa").await?,
        "cancel_unpaid_order" => suite.place(&[("A", 1)], "tok_declined").await?,
        "cancel_timed_out_order" => {
            stage.pause(&suite.payment, "process_payment").await?;
            let placed = suite.place(&[("A", 1)], "tok_visa").await?;
            suite.saga_becomes(&placed, "IN_PROGRESS").await?;
            stage.execute("update saga.saga_instance set deadline = now() where status = 'IN_PROGRESS'").await?;
            suite.saga_becomes(&placed, "TIMED_OUT").await?;
            stage.resume(&suite.payment, "process_payment").await?;
            placed
        }
        "release_stock" | "refund_payment" => {
            let placed = suite.confirmed(&[("A", 1)]).await?;
            ensure!(suite.cancel(&placed).await? == 202);
            placed
        }
        _ => suite.place(&[("A", 1)], "tok_visa").await?,
    })
}

async fn ended(suite: &Dancers, placed: &Value) -> Test {
    let path = format!("/api/sagas/{}", placed["saga_id"].as_str().unwrap_or_default());
    eventually(LIMIT, async || {
        let saga = suite.order.client.get(&path).await?.expect(200)?;
        ensure!(saga["status"] == "COMPLETED" || saga["status"] == "COMPENSATED", "{saga:#}");
        anyhow::Ok(())
    })
    .await
}
