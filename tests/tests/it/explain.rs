//! `GET /api/orders/{id}/explain`: the awaited steps, the obstacles, that each remedy works, and the deadline.

mod obstacles;

use contracts::order_fulfillment::SAGA;

use crate::prelude::*;

/// Why no test of this file audits.
const UNAUDITED: &str = "orders are left in the middle of their saga";

fn path(placed: &Value) -> String {
    format!("/api/orders/{}/explain", placed["order_id"].as_str().unwrap())
}

async fn explained(order: &Replica, placed: &Value) -> anyhow::Result<Value> {
    order.client.get(&path(placed)).await?.expect(200)
}

/// The findings' kinds, in their order.
fn kinds(explanation: &Value) -> Vec<&str> {
    explanation["findings"].as_array().into_iter().flatten().filter_map(|f| f["kind"].as_str()).collect()
}

/// Waits until the explanation has a finding of this kind whose sentence contains these words; returns both.
async fn found(order: &Replica, placed: &Value, kind: &str, words: &[&str]) -> anyhow::Result<(Value, Value)> {
    eventually(async || {
        let explanation = explained(order, placed).await?;
        let finding = explanation["findings"].as_array().into_iter().flatten().find(|f| f["kind"] == kind).cloned();
        let finding = finding.with_context(|| format!("there is no {kind}: {explanation:#}"))?;
        let what = finding["what"].as_str().unwrap_or_default();
        ensure!(what.ends_with('.') && !what.contains(".."), "this is no sentence: {what}");
        for word in words {
            ensure!(what.contains(word), "{word:?} is not in: {what}");
        }
        anyhow::Ok(Some((explanation, finding)))
    })
    .await
}

/// The awaited steps in the explanation, with their services.
fn awaited(explanation: &Value) -> Vec<String> {
    let steps = explanation["waiting_for"].as_array().into_iter().flatten();
    steps.map(|s| format!("{} of {}", s["step"].as_str().unwrap(), s["service"].as_str().unwrap())).collect()
}

/// Carries out the finding's remedy at the service that it names.
async fn follow(finding: &Value, service: &Replica) -> Test {
    let remedy = &finding["remedy"];
    ensure!(remedy["service"] == service.service.0, "the remedy is to be found elsewhere: {finding:#}");
    let (method, path) = remedy["request"].as_str().and_then(|r| r.split_once(' ')).context("no request")?;
    let method: Method = method.parse()?;
    let request = service.client.request(method.clone(), path);
    let request = if method == Method::GET { request } else { request.json(&json!({"reason": "a test"})) };
    service.client.send(request).await?.expect(200)?;
    Ok(())
}

/// Goes through the saga's table: an order is stopped before each step that an event triggers, and must name it.
#[suite_tests::test]
async fn the_step_an_order_waits_for_is_named() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    participants.sell("RARE", 100, 1).await?;
    for step in SAGA.steps.iter().filter(|step| step.consumes().is_some()) {
        let service = step.service.context("no service")?;
        let replica = participants.all().find(|r| r.service == service).context("no replica")?;
        suite.pause(replica, step.name).await?;
        let placed =
            bring_to(&suite, &participants, step.name).await.with_context(|| format!("going to {}", step.name))?;
        let (explanation, paused) = eventually(async || {
            let (explanation, paused) = found(&participants.order, &placed, "consumer_paused", &["operator"]).await?;
            ensure!(awaited(&explanation) == [format!("{} of {service}", step.name)], "{explanation:#}");
            anyhow::Ok(Some((explanation, paused)))
        })
        .await?;
        ensure!(explanation["waiting_for"][0]["on"] == step.consumes().unwrap().name, "{explanation:#}");
        ensure!(explanation["deadline"].is_string() && explanation["at_deadline"].is_string(), "{explanation:#}");
        let summary = explanation["summary"].as_str().unwrap_or_default();
        ensure!(summary.contains(step.name), "the summary does not name {}: {summary}", step.name);
        follow(&paused, replica).await?;
        let ended = eventually(async || {
            let status = participants.saga(&placed).await?["status"].clone();
            ensure!(status == "COMPLETED" || status == "COMPENSATED", "{status}");
            anyhow::Ok(Some(explained(&participants.order, &placed).await?))
        })
        .await?;
        for nothing in ["since", "deadline", "at_deadline"] {
            ensure!(ended[nothing].is_null() && ended["waiting_for"] == json!([]), "{ended:#}");
        }
    }
    suite.audit().await
}

/// Places an order that stops before this step.
pub(crate) async fn bring_to(suite: &TestSuite, participants: &Participants, step: &str) -> anyhow::Result<Value> {
    Ok(match step {
        "cancel_unfillable_order" => participants.place(&[("RARE", 2)], "tok_visa").await?,
        "cancel_unpaid_order" => participants.place(&[("A", 1)], "tok_declined").await?,
        "cancel_timed_out_order" => {
            suite.pause(&participants.payment, "process_payment").await?;
            let placed = participants.place(&[("A", 1)], "tok_visa").await?;
            participants.saga_becomes(&placed, "IN_PROGRESS").await?;
            suite.execute("update saga.saga_instance set deadline = now() where status = 'IN_PROGRESS'").await?;
            participants.saga_becomes(&placed, "TIMED_OUT").await?;
            suite.resume(&participants.payment, "process_payment").await?;
            placed
        }
        "release_stock" | "refund_payment" => {
            let placed = participants.confirmed(&[("A", 1)]).await?;
            ensure!(participants.cancel(&placed).await? == 202);
            placed
        }
        _ => participants.place(&[("A", 1)], "tok_visa").await?,
    })
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_compensation_shows_its_attempts_until_it_is_stuck() -> Test {
    let (suite, participants) = TestSuite::selling(100, 1_000).await?;
    let placed = participants.confirmed(&[("A", 1)]).await?;
    suite.pause(&participants.payment, "refund_payment").await?;
    ensure!(participants.cancel(&placed).await? == 202);
    let (explanation, _) = found(&participants.order, &placed, "consumer_paused", &[]).await?;
    ensure!(explanation["at_deadline"].as_str().is_some_and(|s| s.contains("1 of 5 times")), "{explanation:#}");
    let inventory_has_answered = |explanation: &Value| awaited(explanation) == ["refund_payment of payment"];
    participants.order.client.until(&path(&placed), inventory_has_answered).await?;
    // Payment gets no event, and all five retries have failed.
    suite.lose_last("events.order.OrderCancelled").await?;
    suite.execute("update saga.saga_instance set compensation_attempts = 5, compensation_deadline = now()").await?;
    participants.saga_becomes(&placed, "FAILED").await?;
    let stuck = explained(&participants.order, &placed).await?;
    ensure!(stuck["summary"].as_str().is_some_and(|s| s.contains("an operator has to resume it")), "{stuck:#}");
    ensure!(stuck["deadline"].is_null() && awaited(&stuck) == ["refund_payment of payment"], "{stuck:#}");
    let then = stuck["at_deadline"].as_str().context("no way on")?;
    let (_, path) = then.split_once("POST ").context("no request")?;
    suite.resume(&participants.payment, "refund_payment").await?;
    participants.order.client.act(path.trim_end_matches(" retries the compensation.")).await?;
    participants.saga_becomes(&placed, "COMPENSATED").await.map(drop)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn an_order_is_explained_while_all_else_is_down() -> Test {
    let (suite, Participants { order, inventory, payment, others }) = TestSuite::selling(100, 1_000).await?;
    suite.nats.lock().await.kill();
    drop((inventory, payment, others));
    let placed = order.client.order(&[("A", 1)], "tok_visa").await?;
    let (explanation, _) = found(&order, &placed, "broker_away", &[]).await?;
    ensure!(awaited(&explanation) == ["reserve_stock of inventory"], "{explanation:#}");
    Ok(())
}
