//! docs/asyncapi.json and docs/schemas describe what is published, and nothing else. Every audit of a suite compares the bodies
//! of its events, too (`tests/src/documented.rs`).

use std::{collections::BTreeSet, fs};

use async_nats::HeaderMap;
use contracts::{SERVICES, consumers, steps};
use futures_util::TryStreamExt;
use suite_tests::AsyncApi;

use crate::{prelude::*, redelivery::one_order_of_every_kind};

/// Action, service, subject and message, and the step and durable consumer where there are.
type Operation = [String; 6];

fn documented(api: &AsyncApi) -> anyhow::Result<BTreeSet<Operation>> {
    let mut all = BTreeSet::new();
    for operation in api.document["operations"].as_object().into_iter().flat_map(|all| all.values()) {
        let text = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
        let channel = operation["channel"]["$ref"].as_str().and_then(|to| to.strip_prefix("#/channels/"));
        for message in operation["messages"].as_array().into_iter().flatten() {
            let (of, message) =
                message["$ref"].as_str().and_then(|to| to.split_once("/messages/")).context("a message")?;
            ensure!(of.strip_prefix("#/channels/") == channel, "{operation:#} has a message of another channel");
            let subject = channel.unwrap_or_default().to_owned();
            let new = [
                text("action"),
                text("x-service"),
                subject,
                message.to_owned(),
                text("x-step"),
                text("x-durable-consumer"),
            ];
            ensure!(all.insert(new), "twice: {operation:#}");
        }
    }
    Ok(all)
}

/// What the table of steps has, and inventory's events about its products, which no step publishes.
fn in_the_table() -> BTreeSet<Operation> {
    let text = str::to_owned;
    let mut all = BTreeSet::new();
    for step in steps() {
        for event in step.emits {
            for by in event.publishers.iter().filter(|by| step.service.is_none_or(|service| service == **by)) {
                let own =
                    [text("send"), text(by.0), event.subject(*by), event.wire_name(), text(step.name), String::new()];
                all.insert(own);
            }
        }
    }
    for consumer in consumers() {
        let event = consumer.step.consumes().expect("an event");
        let (subject, step) = (event.subject(consumer.publisher), text(consumer.step.name));
        all.insert([
            text("receive"),
            text(consumer.service.0),
            subject,
            event.wire_name(),
            step,
            consumer.step.consumer(),
        ]);
    }
    for name in ["ProductCreated", "ProductPriceChanged", "ProductDetailsChanged", "StockReplenished"] {
        let (subject, message) = (format!("events.inventory.{name}"), format!("{name}.v1"));
        all.insert([text("send"), text("inventory"), subject, message, String::new(), String::new()]);
    }
    all
}

#[test]
fn every_step_and_no_other_is_documented() -> Test {
    let api = AsyncApi::read()?;
    let (documented, table) = (documented(&api)?, in_the_table());
    let differing: Vec<_> = documented.symmetric_difference(&table).collect();
    ensure!(differing.is_empty(), "either in the document or in the table: {differing:#?}");
    let subjects: BTreeSet<_> = table.iter().map(|[_, _, subject, ..]| subject.as_str()).collect();
    let channels = api.document["channels"].as_object().context("channels")?;
    ensure!(channels.keys().map(String::as_str).collect::<BTreeSet<_>>() == subjects, "{:?}", channels.keys());
    ensure!(channels.iter().all(|(subject, channel)| channel["address"] == **subject));
    let messages: BTreeSet<_> = table.iter().map(|[_, _, _, message, ..]| message.as_str()).collect();
    let described = api.document["components"]["messages"].as_object().context("messages")?;
    ensure!(described.keys().map(String::as_str).collect::<BTreeSet<_>>() == messages, "{:?}", described.keys());
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn the_documented_consumers_are_the_brokers() -> Test {
    let suite = TestSuite::new().await?;
    let api = AsyncApi::read()?;
    let jetstream = suite.jetstream().await?;
    let mut provisioned = BTreeSet::new();
    for service in SERVICES {
        let stream = jetstream.get_stream(service.stream()).await?;
        let consumers: Vec<_> = stream.consumers().try_collect().await?;
        provisioned.extend(consumers.into_iter().map(|consumer| (consumer.name, consumer.config.filter_subject)));
    }
    let receiving = documented(&api)?.into_iter().filter(|[action, ..]| action == "receive");
    let documented: BTreeSet<_> = receiving.map(|[_, _, subject, _, _, consumer]| (consumer, subject)).collect();
    ensure!(provisioned == documented, "the broker has {provisioned:#?}");
    Ok(())
}

#[suite_tests::test]
async fn events_are_sent_as_documented() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    one_order_of_every_kind(&suite, &participants).await?;
    let more = json!({"quantity": 5, "reason": "a delivery"});
    participants.inventory.client.post("/api/products/A/replenish", &more).await?.expect(200)?;
    suite.audit().await?;
    let api = AsyncApi::read()?;
    let known = &api.document["components"]["schemas"];
    let jetstream = suite.jetstream().await?;
    let mut sent = BTreeSet::new();
    for service in SERVICES {
        let stream = jetstream.get_stream(service.stream()).await?;
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let message = stream.get_raw_message(sequence).await?;
            let (headers, body) = (texts(&message.headers), serde_json::from_slice(&message.payload)?);
            let name = headers["ce-type"].as_str().context("no type")?.to_owned();
            api.check_body(&message.subject, &name, &body)?;
            api.check_headers(&name, &headers)?;
            ensure!(headers["ce-source"] == format!("/services/{service}"), "{headers:#}");
            for header in headers.as_object().into_iter().flat_map(|all| all.keys()) {
                let of = |part: &str| known[part]["properties"][header].is_object();
                ensure!(of("EventHeaders") || of("SagaEventHeaders"), "{name}: the header {header} is not documented");
            }
            sent.insert(name);
        }
    }
    let messages = api.document["components"]["messages"].as_object().context("messages")?;
    ensure!(messages.keys().all(|name| sent.contains(name)), "of {:?} only {sent:?} were sent", messages.keys());
    Ok(())
}

fn texts(headers: &HeaderMap) -> Value {
    headers.iter().map(|(name, values)| (name.to_string(), json!(values[0].as_str()))).collect()
}

/// So a schema that accepts anything is no schema.
#[test]
fn schemas_accept_what_serde_writes_and_nothing_else() -> Test {
    let api = AsyncApi::read()?;
    for (name, message) in api.document["components"]["messages"].as_object().context("messages")? {
        let golden = fs::read(format!("{}/golden/{name}.json", env!("CARGO_MANIFEST_DIR")))?;
        let golden: Value = serde_json::from_slice(&golden)?;
        ensure!(message["examples"][0]["payload"] == golden, "{name} has another example");
        let (event, _) = name.split_once('.').context("a version")?;
        let channels = api.document["channels"].as_object().context("channels")?;
        let subject = channels.keys().find(|subject| subject.ends_with(&format!(".{event}"))).context("a channel")?;
        api.check_body(subject, name, &golden)?;
        for wrong in spoiled(&golden) {
            ensure!(api.refuses(name, &wrong), "a schema of {name} accepts {wrong}");
        }
    }
    Ok(())
}

/// Members that may be missing: those that events of earlier builds lack, and the category of a product.
const OPTIONAL: [&str; 6] = ["category", "detected_by", "elapsed_ms", "last_event_type", "started_at", "step"];

/// The value without one of its members, or with a member of another type, at each depth.
fn spoiled(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let members: Vec<String> = match value {
        Value::Object(members) => members.keys().cloned().collect(),
        Value::Array(_) => return spoiled(&value[0]).into_iter().map(|item| json!([item])).collect(),
        _ => return vec![if value.is_string() { json!(1) } else { json!("one") }],
    };
    for name in members {
        if !OPTIONAL.contains(&name.as_str()) {
            let mut without = value.clone();
            without.as_object_mut().and_then(|members| members.remove(&name));
            all.push(without);
        }
        for other in spoiled(&value[&name]).into_iter().chain([json!(true)]) {
            let mut with = value.clone();
            with[&name] = other;
            all.push(with);
        }
    }
    all
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn the_console_serves_the_document() -> Test {
    let suite = TestSuite::new().await?;
    let (console, process) = Running::auditor(&suite, "1s")?;
    let served = eventually(async || console.get("/asyncapi.json").await?.expect(200).map(Some)).await?;
    ensure!(served == AsyncApi::read()?.document, "the console serves another document");
    let described = console.get("/openapi.json").await?.expect(200)?;
    ensure!(described["paths"]["/asyncapi.json"].is_object(), "it is not an operation of the console");
    let link = described["info"]["description"].as_str().is_some_and(|text| text.contains("(/asyncapi.json)"));
    ensure!(link, "the console's page of its operations does not link it");
    drop(process);
    Ok(())
}
