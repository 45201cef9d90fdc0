//! 20: order posts its events to an endpoint of this console, which is down, fails, and refuses one. Every event arrives once, those of
//! an order in their order.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    demo::{endpoint::Endpoint, scenario_run::ScenarioRun},
    suite::{NewOrder, ORDER, Order, SuiteError},
};

const ORDERS: usize = 30;

pub(super) async fn play(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("A new product, and an endpoint that is down", 1_000, 900).await?;
    let endpoint = Endpoint::start(run.suite.addresses().of(ORDER)).await?;
    endpoint.answer(|_| 503);
    let settings = [("WEBHOOK_URL", endpoint.url()), ("WEBHOOK_SECRET", endpoint.secret())];
    // A replica that stands by posts too, when it takes over.
    run.restart_with("order", &settings).await?;
    act(run, Method::POST, "skip").await?;
    let active = async || Ok(webhook(run).await?["active"].as_bool().filter(|active| *active));
    run.claim_soon("order's webhook is active, and is moved to the end", active).await?;
    // Usually none.
    let before = held(&webhook(run).await?);

    run.step(&format!("{ORDERS} customers order meanwhile")).await;
    let placed = run.place_all(&sku, ORDERS, "tok_visa").await?;
    run.claim_tally(&placed, ORDERS, Duration::from_secs(40)).await?;
    let tried = async || Ok((endpoint.requests() > 0).then_some(()));
    run.claim_soon("the endpoint was tried", tried).await?;
    let state = webhook(run).await?;
    run.claim_is("the outage has cost no event an attempt", held(&state), before);
    run.note(&format!("the oldest event has waited for {:.0} s", state["oldest_seconds"].as_f64().unwrap_or_default()));

    run.step("The endpoint is up, and answers 500").await;
    endpoint.answer(|_| 500);
    let waits = async || Ok(Some(held(&webhook(run).await?)).filter(|(waiting, _)| *waiting > before.0));
    let (waiting, parked) = run.claim_soon("events that failed wait for their next attempt", waits).await?;
    run.note(&format!("{waiting} events are held back"));
    run.claim_is("none is parked", parked, before.1);

    run.step("The endpoint works").await;
    endpoint.answer(|_| 204);
    claim_posted(run, &endpoint, &placed).await?;

    run.step("It refuses the first event of one order for good").await;
    endpoint.answer(|event| if event["data"]["customer_id"] == "rosa" { 422 } else { 204 });
    let refused = run.place(&NewOrder::of("rosa", &sku, 1, "tok_visa")).await?;
    run.claim_confirmed(refused.order_id).await?;
    let others = run.place_all(&sku, 3, "tok_visa").await?;
    run.claim_tally(&others, 3, Duration::from_secs(20)).await?;
    claim_posted(run, &endpoint, &others).await?;
    let parked = async || parked_of(run, refused.order_id).await;
    let parked = run.claim_soon("it is parked", parked).await?;
    run.note(parked["last_error"].as_str().unwrap_or_default());
    let arrived =
        endpoint.accepted().into_iter().filter(|event| event.aggregate == refused.order_id.to_string()).count();
    run.claim_is("and the later ones of this order wait", arrived, 0);

    run.step("The endpoint is repaired, and an operator requeues the event").await;
    endpoint.answer(|_| 204);
    let event_id = parked["event_id"].as_str().context("an event without an id")?;
    act(run, Method::POST, &format!("events/{event_id}/requeue")).await?;
    claim_posted(run, &endpoint, &[refused]).await?;
    run.claim_is("every request was signed", endpoint.unsigned(), 0);
    run.restart("order").await
}

async fn webhook(run: &ScenarioRun) -> Result<Value, SuiteError> {
    run.suite.listed(ORDER, "webhook").await
}

/// How many events wait for their next attempt, and how many are parked.
fn held(webhook: &Value) -> (i64, i64) {
    (webhook["waiting"].as_i64().unwrap_or(-1), webhook["parked"].as_i64().unwrap_or(-1))
}

async fn parked_of(run: &ScenarioRun, order_id: Uuid) -> Result<Option<Value>, SuiteError> {
    let parked = run.suite.listed(ORDER, "webhook/events?state=PARKED&limit=200").await?;
    let mut parked = parked["items"].as_array().into_iter().flatten();
    Ok(parked.find(|event| event["aggregate_id"] == order_id.to_string()).cloned())
}

async fn act(run: &ScenarioRun, method: Method, path: &str) -> Result<Value, SuiteError> {
    let reason = json!({"reason": "scenario 20"});
    run.suite.operate(ORDER, method, &format!("admin/webhook/{path}"), |request| request.json(&reason)).await
}

/// Claims that the endpoint has all events of these orders, each once, and those of an order in its order.
async fn claim_posted(run: &ScenarioRun, endpoint: &Endpoint, orders: &[Order]) -> anyhow::Result<()> {
    let expected: BTreeSet<Uuid> = run.events_of(ORDER, orders).await?.into_iter().collect();
    let all = async || {
        let ids: BTreeSet<Uuid> = endpoint.accepted().into_iter().map(|event| event.id).collect();
        Ok(expected.is_subset(&ids).then_some(()))
    };
    run.claim_soon(&format!("the {} events of these orders arrive", expected.len()), all).await?;
    let accepted = endpoint.accepted();
    let of_these: Vec<_> = accepted.iter().filter(|event| expected.contains(&event.id)).collect();
    run.claim_is("each arrived once", of_these.len(), expected.len());
    let in_order = orders.iter().all(|order| {
        let of_one = of_these.iter().filter(|event| event.aggregate == order.order_id.to_string());
        of_one.map(|event| event.sequence).is_sorted()
    });
    run.claim("those of an order in its order", in_order);
    Ok(())
}
