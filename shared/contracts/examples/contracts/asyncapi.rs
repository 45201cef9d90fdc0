//! The events as an AsyncAPI document: a channel per subject, an operation per step that publishes or consumes on it.

use std::{error::Error, fs};

use contracts::{SERVICES, steps};
use saga::{EventType, Kind, Service, Step};
use serde_json::{Map, Value, json};

use super::{Contracts, headers, json_schema};

pub(crate) fn document(all: &Contracts) -> Result<Value, Box<dyn Error>> {
    Ok(json!({
        "asyncapi": "3.0.0",
        "id": "urn:pas-de-trois",
        "info": {
            "title": "Pas de Trois",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The events of the suite. Each is delivered at least once, in the order of its aggregate (`ce-subject`): \
                readers drop a `ce-id` that they have seen, ignore fields that they do not know, and a change that is no \
                addition is a new version (`ce-type`) on the same channel.",
            "license": {"name": "MIT OR Apache-2.0"},
            "tags": SERVICES.map(|service| json!({"name": service.0})),
        },
        "defaultContentType": "application/json",
        "servers": {"nats": server()},
        "channels": channels(all),
        "operations": operations(all)?,
        "components": {
            "messages": all.types.iter().map(|(name, event)| (name.clone(), message(name, event))).collect::<Map<_, _>>(),
            "schemas": schemas(all),
            "securitySchemes": {"user": {"type": "userPassword", "description":
                "A user per service, who may publish on its own subjects only. The auditor may read all streams."}},
        },
    }))
}

fn server() -> Value {
    json!({
        "host": "{host}:{port}",
        "protocol": "nats",
        "description": "NATS JetStream: a stream per service holds the service's events.",
        "variables": {
            "host": {"default": "localhost"},
            "port": {"default": "14222", "description": "NATS_PORT of ./scripts/up and of Compose."},
        },
        "security": [{"$ref": "#/components/securitySchemes/user"}],
    })
}

fn channels(all: &Contracts) -> Map<String, Value> {
    let mut channels = Map::new();
    for (name, event) in &all.types {
        for publisher in event.publishers {
            let subject = event.subject(*publisher);
            let channel = channels.entry(subject.clone()).or_insert_with(|| {
                json!({
                    "address": subject,
                    "description": format!("`{}` of {publisher}, in the stream {}.", event.name, publisher.stream()),
                    "messages": {},
                    "x-stream": publisher.stream(),
                })
            });
            channel["messages"][name] = json!({"$ref": format!("#/components/messages/{name}")});
        }
    }
    channels
}

fn message(name: &str, event: &EventType) -> Value {
    let mut message = json!({
        "name": name,
        "title": event.name,
        "contentType": "application/json",
        "correlationId": {"location": "$message.header#/ce-correlationid"},
        "headers": headers::of(event),
        "payload": {"$ref": format!("{}{name}", json_schema::COMPONENTS)},
        "x-aggregate": event.aggregate,
        "x-refusal": event.refusal,
    });
    // A new event has none until its test is written.
    let golden = fs::read(format!("{}/../../tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR")));
    if let Ok(payload) = golden.and_then(|json| Ok(serde_json::from_slice::<Value>(&json)?)) {
        message["examples"] = json!([{"payload": payload}]);
    }
    message
}

fn schemas(all: &Contracts) -> Map<String, Value> {
    let described = all.events.iter().chain(&all.parts);
    let schemas = described.map(|(name, schema)| (name.clone(), json_schema::of(schema, json_schema::COMPONENTS)));
    let headers = headers::parts().into_iter().map(|(name, schema)| (name.to_owned(), schema));
    schemas.chain(headers).collect()
}

fn operations(all: &Contracts) -> Result<Map<String, Value>, Box<dyn Error>> {
    let mut operations = Map::new();
    for step in steps() {
        for event in step.emits {
            // A step of no service is taken by each that publishes its event.
            for service in event.publishers.iter().filter(|service| step.service.is_none_or(|own| own == **service)) {
                operations.insert(
                    format!("{service}.{}.sends.{}", step.name, event.name),
                    sends(event, *service, Some(step)),
                );
            }
        }
    }
    for consumer in contracts::consumers() {
        let event = consumer.step.consumes().ok_or("a consumer of no event")?;
        let from = event.subject(consumer.publisher);
        let name = format!("{}.{}.receives.{from}", consumer.service, consumer.step.name);
        operations.insert(name, receives(all, &event, &consumer));
    }
    let by_a_step = |event: &EventType| steps().any(|step| step.emits.iter().any(|emitted| emitted.name == event.name));
    for event in all.types.values().filter(|event| !by_a_step(event)) {
        for service in event.publishers {
            operations.insert(format!("{service}.sends.{}", event.name), sends(event, *service, None));
        }
    }
    Ok(operations)
}

fn sends(event: &EventType, service: Service, step: Option<&Step>) -> Value {
    let subject = event.subject(service);
    let mut operation = json!({
        "action": "send",
        "channel": {"$ref": format!("#/channels/{subject}")},
        "messages": [{"$ref": format!("#/channels/{subject}/messages/{}", event.wire_name())}],
        "summary": step.map_or_else(|| format!("{service} publishes it outside any saga."), |step| taken(service, step, "publishes")),
        "tags": [{"name": service.0}],
        "x-service": service.0,
    });
    if let Some(step) = step {
        operation["x-step"] = json!(step.name);
    }
    operation
}

fn receives(all: &Contracts, event: &EventType, consumer: &contracts::Consumer) -> Value {
    let subject = event.subject(consumer.publisher);
    let versions = all.types.iter().filter(|(_, other)| other.name == event.name);
    let messages = versions.map(|(name, _)| json!({"$ref": format!("#/channels/{subject}/messages/{name}")}));
    json!({
        "action": "receive",
        "channel": {"$ref": format!("#/channels/{subject}")},
        "messages": messages.collect::<Vec<_>>(),
        "summary": taken(consumer.service, consumer.step, "consumes"),
        "tags": [{"name": consumer.service.0}],
        "x-service": consumer.service.0,
        "x-step": consumer.step.name,
        "x-durable-consumer": consumer.step.consumer(),
    })
}

/// What the step of this service is in its saga.
fn taken(service: Service, step: &Step, verb: &str) -> String {
    let name = step.name;
    match step.kind {
        Kind::Compensatable { .. } => format!("Step {} of the saga, `{name}` of {service}, {verb} it.", step.number),
        Kind::Pivot => format!("The pivot of the saga, `{name}` of {service}, {verb} it."),
        Kind::Retriable => format!("`{name}` of {service} {verb} it."),
        Kind::Cancellation => format!("`{name}` of {service}, which cancels the order, {verb} it."),
        Kind::Compensation => format!("`{name}` of {service}, which undoes step {}, {verb} it.", step.number),
        Kind::Projection => format!("`{name}` of {service}, which maintains a view, {verb} it."),
    }
}
