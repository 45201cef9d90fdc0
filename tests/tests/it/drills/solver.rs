//! The reference: what an operator looks at, in the order of certainty. It has nothing but the tools.

use std::collections::BTreeSet;

use crate::{mcp::Agent, prelude::*};

const SERVICES: [&str; 3] = ["order", "inventory", "payment"];
/// Longer than a statement may take, in seconds.
const LONG: f64 = 12.0;

/// What is wrong, and which orders it concerns.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) place: String,
    pub(super) cause: &'static str,
    pub(super) orders: Vec<String>,
}

/// Three orders have to be named.
fn diagnosis(place: impl Into<String>, cause: &'static str, orders: &[String]) -> Option<Diagnosis> {
    let orders = orders.get(..3)?.to_vec();
    Some(Diagnosis { place: place.into(), cause, orders })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items(answer: &Value, of: &str) -> Vec<Value> {
    answer[of].as_array().cloned().unwrap_or_default()
}

/// An order that makes no progress, and the first thing that holds it up.
struct Stuck {
    order_id: String,
    step: String,
    kind: String,
    /// All findings, as text.
    what: String,
    /// Without an end for longer than a statement may take.
    long: bool,
}

/// `None` while nothing is certain.
pub(super) async fn diagnose(agent: &mut Agent) -> anyhow::Result<Option<Diagnosis>> {
    if let Some(found) = data(agent).await? {
        return Ok(Some(found));
    }
    let stuck = stuck(agent).await?;
    if let Some(found) = dead_letters(agent, &stuck).await? {
        return Ok(Some(found));
    }
    let with = |kind: &str| -> Vec<&Stuck> { stuck.iter().filter(|of| of.kind == kind).collect() };
    let ids = |of: &[&Stuck]| -> Vec<String> { of.iter().map(|of| of.order_id.clone()).collect() };
    let paused = with("consumer_paused");
    if let Some(first) = paused.first() {
        return Ok(diagnosis(&first.step, "consumer_paused", &ids(&paused)));
    }
    let parked = with("publication_parked");
    if let Some(first) = parked.first() {
        let outboxes = publisher(&first.what, &SERVICES);
        let mut place = outboxes;
        for service in SERVICES {
            let parked = agent.done("list_outbox", json!({"service": service, "state": "PARKED"})).await?;
            if !items(&parked, "items").is_empty() {
                place = service;
            }
        }
        return Ok(diagnosis(format!("relay_{place}"), "event_parked", &ids(&parked)));
    }
    let missing = with("event_missing");
    if let Some(first) = missing.first() {
        return Ok(diagnosis(format!("relay_{}", publisher(&first.what, &SERVICES)), "event_lost", &ids(&missing)));
    }
    for (kind, cause) in [("relay_paused", Some("relay_paused")), ("publication_pending", None)] {
        let waiting = with(kind);
        // One or two may be on their way just now.
        let Some(first) = waiting.get(2) else { continue };
        let service = publisher(&first.what, &SERVICES);
        let relay = agent.done("inspect_relay", json!({"service": service})).await?;
        let cause = match cause {
            Some(cause) => cause,
            None if relay["last_failure"].to_string().contains("maximum bytes") => "stream_full",
            // Longer than any relay takes that works.
            None if relay["last_failure"].is_null() && relay["oldest_pending_seconds"].as_f64() > Some(8.0) => {
                "lease_held"
            }
            None => continue,
        };
        return Ok(diagnosis(format!("relay_{service}"), cause, &ids(&waiting)));
    }
    let paying: Vec<&Stuck> = stuck.iter().filter(|of| of.step == "process_payment").collect();
    if paying.len() > 2 {
        return processor(agent, &paying).await;
    }
    if let Some(found) = standstill(agent, &stuck).await? {
        return Ok(Some(found));
    }
    let seen: Vec<_> = stuck.iter().map(|of| (&of.step, &of.kind)).collect();
    ensure!(seen.is_empty(), "{seen:?}");
    Ok(None)
}

/// The service that is named in a sentence as a relay's or an outbox's.
fn publisher<'a>(what: &str, services: &[&'a str]) -> &'a str {
    let named = |service: &&&str| {
        ["relay of ", "outbox of ", "published by "].iter().any(|of| what.contains(&format!("{of}{service}")))
    };
    services.iter().find(named).copied().unwrap_or_default()
}

/// What stands in the databases.
async fn data(agent: &mut Agent) -> anyhow::Result<Option<Diagnosis>> {
    let sold = agent.done("list_products", json!({"service": "order", "limit": 200})).await?;
    let stocked = agent.done("list_products", json!({"service": "inventory", "limit": 200})).await?;
    for product in items(&sold, "items") {
        let Some(stock) = items(&stocked, "items").into_iter().find(|of| of["sku"] == product["sku"]) else { continue };
        let orders = items(&agent.done("find_orders", json!({})).await?, "orders");
        if stock["status"] != product["status"] {
            let refused = orders.iter().filter(|of| of["failed_at_step"] == "reserve_stock");
            let refused: Vec<_> = refused.map(|order| text(&order["order_id"])).collect();
            return Ok(diagnosis("reserve_stock", "product_discontinued", &refused));
        }
        if stock["price"] != product["price"] {
            let wrong = orders.iter().filter(|of| of["total_amount"] == product["price"]["amount"]);
            let wrong: Vec<_> = wrong.map(|order| text(&order["order_id"])).collect();
            return Ok(diagnosis("create_order", "price_wrong", &wrong));
        }
    }
    let audit = agent.done("audit", json!({})).await?;
    let violated = items(&audit, "violated").into_iter().find(|of| of["name"] == "order_agrees_with_payment");
    let examples = violated.map(|of| items(&of, "examples")).unwrap_or_default();
    let worth = examples.iter().filter_map(Value::as_str).filter(|example| example.contains("is worth"));
    let orders: BTreeSet<String> = worth.filter_map(|e| e.split(' ').nth(1).map(str::to_owned)).collect();
    if !orders.is_empty() {
        return Ok(diagnosis("process_payment", "row_changed", &orders.into_iter().collect::<Vec<_>>()));
    }
    // A shop where nobody's card is good.
    let ended = items(&agent.done("find_orders", json!({})).await?, "orders");
    let ended: Vec<_> = ended.into_iter().filter(|order| order["ms"].is_i64()).take(12).collect();
    if ended.len() == 12 && ended.iter().all(|order| order["failed_at_step"] == "process_payment") {
        let mut declined = Vec::new();
        for order in &ended {
            let paid = agent.done("list_payments", json!({"order_id": order["order_id"]})).await?;
            if paid["items"][0]["decline_code"] == "card_declined" {
                declined.push(text(&order["order_id"]));
            }
        }
        return Ok(diagnosis("process_payment", "processor_declines", &declined));
    }
    Ok(None)
}

async fn stuck(agent: &mut Agent) -> anyhow::Result<Vec<Stuck>> {
    let mut stuck = Vec::new();
    for status in ["STARTED", "IN_PROGRESS", "COMPENSATING"] {
        let waiting = json!({"saga_status": status, "older_than_seconds": 4});
        let longer = json!({"saga_status": status, "older_than_seconds": LONG as u32 + 6});
        let longer = items(&agent.done("find_orders", longer).await?, "orders");
        let waiting = items(&agent.done("find_orders", waiting).await?, "orders");
        for order in waiting.iter().rev().take(10).chain(longer.iter().take(3)) {
            if stuck.iter().any(|of: &Stuck| of.order_id == text(&order["order_id"])) {
                continue;
            }
            let explained = agent.done("explain_order", json!({"id": order["order_id"]})).await?;
            let findings = items(&explained, "findings");
            let Some(first) = findings.first() else { continue };
            let what = findings.iter().map(|of| text(&of["what"])).collect::<Vec<_>>().join("\n");
            // Of a compensation the step that it waits for is the one that is named first.
            let steps = items(&explained, "waiting_for");
            let named = steps.iter().find(|of| text(&first["what"]).contains(of["step"].as_str().unwrap_or("?")));
            stuck.push(Stuck {
                order_id: text(&order["order_id"]),
                step: named.or(steps.first()).map(|of| text(&of["step"])).unwrap_or_default(),
                kind: text(&first["kind"]),
                what,
                long: longer.iter().any(|of| of["order_id"] == order["order_id"]),
            });
        }
    }
    Ok(stuck)
}

/// Events that a step gives up. Where its breaker is open, most others still wait.
async fn dead_letters(agent: &mut Agent, stuck: &[Stuck]) -> anyhow::Result<Option<Diagnosis>> {
    for service in SERVICES {
        let letters = agent.done("list_dead_letters", json!({"service": service, "status": "PENDING"})).await?;
        let letters = items(&letters, "items");
        let Some(first) = letters.first() else { continue };
        let mut orders = Vec::new();
        for letter in letters.iter().take(3) {
            let found = agent.done("find_orders", json!({"q": letter["saga_id"]})).await?;
            orders.push(text(&found["orders"][0]["order_id"]));
        }
        let (step, why) = (text(&first["step"]), first["error_chain"].to_string());
        let cause = match &why {
            why if why.contains("permission denied") => "permission_missing",
            why if why.contains("check constraint") => "constraint_violated",
            _ => "event_unreadable",
        };
        if cause != "event_unreadable" {
            let others = stuck.iter().filter(|of| of.step == step).map(|of| of.order_id.clone());
            orders.extend(others.filter(|id| !orders.contains(id)).collect::<Vec<_>>());
        }
        return Ok(diagnosis(step, cause, &orders));
    }
    Ok(None)
}

/// Payments that do not come to an end: what the last failures say.
async fn processor(agent: &mut Agent, paying: &[&Stuck]) -> anyhow::Result<Option<Diagnosis>> {
    let breakers = agent.done("list_breakers", json!({"service": "payment"})).await?.to_string();
    let said = paying.iter().map(|of| of.what.as_str()).chain([breakers.as_str()]).collect::<Vec<_>>().join("\n");
    let cause = if said.contains("503 Service Unavailable") {
        "processor_fails"
    } else if said.contains("elapsed") || said.contains("timed out") {
        "processor_slow"
    } else if said.contains("connection closed") || said.contains("sending request") {
        "processor_answers_lost"
    } else {
        return Ok(None);
    };
    let ids: Vec<_> = paying.iter().map(|of| of.order_id.clone()).collect();
    Ok(diagnosis("process_payment", cause, &ids))
}

/// A step that takes events and does not finish, without an error.
async fn standstill(agent: &mut Agent, stuck: &[Stuck]) -> anyhow::Result<Option<Diagnosis>> {
    let waiting: Vec<&Stuck> = stuck.iter().filter(|of| of.kind == "under_way" && of.long).collect();
    let Some(first) = waiting.get(2) else { return Ok(None) };
    let ids: Vec<_> = waiting.iter().map(|of| of.order_id.clone()).collect();
    let metrics = agent.done("metrics", json!({"service": "order", "prefix": "postgres_oldest_xmin_age"})).await?;
    let open = metrics.as_object().into_iter().flatten().filter_map(|(_, age)| age.as_f64()).fold(0.0, f64::max);
    // A slow statement ends at its time limit, and begins again.
    let cause = if open > LONG { "lock_held" } else { "statement_slow" };
    Ok(diagnosis(&first.step, cause, &ids))
}

/// What an operator can do before the answer.
pub(super) async fn mend(agent: &mut Agent, found: &Diagnosis) -> Test {
    let service = match found.place.strip_prefix("relay_") {
        Some(service) => service,
        None if found.place == "refund_payment" => "payment",
        None => "order",
    };
    match found.cause {
        "consumer_paused" => {
            let step = json!({"service": service, "step": found.place, "reason": "it was paused"});
            agent.done("resume_consumer", step).await?;
        }
        "relay_paused" => {
            agent.done("resume_relay", json!({"service": service, "reason": "it was paused"})).await?;
        }
        "price_wrong" => {
            agent.done("rebuild_catalogue", json!({"reason": "a price differs"})).await?;
        }
        "event_parked" => {
            let parked = agent.done("list_outbox", json!({"service": service, "state": "PARKED"})).await?;
            for event in items(&parked, "items") {
                let requeue =
                    json!({"service": service, "event_id": event["event_id"], "reason": "it can be published"});
                agent.done("requeue_outbox_entry", requeue).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Dead letters: replayed once their cause is gone; those that nobody can read are discarded, and their orders cancelled.
pub(super) async fn tidy_up(agent: &mut Agent, cause: &'static str) -> Test {
    for service in SERVICES {
        let letters = agent.done("list_dead_letters", json!({"service": service, "status": "PENDING"})).await?;
        for letter in items(&letters, "items") {
            let this = json!({"service": service, "id": letter["id"], "reason": "mended"});
            if cause != "event_unreadable" {
                // It may fail, or be decided, meanwhile.
                agent.call("replay_dead_letter", this).await?;
                continue;
            }
            agent.confirmed("discard_dead_letter", this).await?;
            let found = agent.done("find_orders", json!({"q": letter["saga_id"]})).await?;
            let order = json!({"id": found["orders"][0]["order_id"], "reason": "its event cannot be read"});
            agent.confirmed("cancel_order", order).await?;
        }
    }
    Ok(())
}
