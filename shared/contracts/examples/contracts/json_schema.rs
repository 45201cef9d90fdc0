//! JSON Schema of what utoipa describes for OpenAPI.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Contracts;

/// Where OpenAPI and AsyncAPI have their schemas.
pub(crate) const COMPONENTS: &str = "#/components/schemas/";

/// The schema, whose parts are found below `parts`.
pub(crate) fn of(schema: &impl Serialize, parts: &str) -> Value {
    plain(serde_json::to_value(schema).unwrap_or_default(), parts)
}

/// The schema of one event, with the parts that it needs.
pub(crate) fn alone(all: &Contracts, event: &str) -> Option<Value> {
    const PARTS: &str = "#/$defs/";
    let mut schema = of(all.events.get(event)?, PARTS);
    let (mut found, mut parts) = (references(&schema, PARTS), Map::new());
    while let Some(name) = found.pop_first() {
        let part = of(all.parts.get(&name)?, PARTS);
        found.extend(references(&part, PARTS));
        parts.insert(name, part);
        found.retain(|name| !parts.contains_key(name));
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(format!("urn:pas-de-trois:events:{event}"));
    schema["title"] = json!(event);
    schema["$defs"] = Value::Object(parts);
    Some(schema)
}

/// `example` is a word of OpenAPI only; in JSON Schema it is a list.
fn plain(schema: Value, parts: &str) -> Value {
    match schema {
        Value::Object(words) => {
            Value::Object(words.into_iter().map(|(word, value)| keyword(word, value, parts)).collect())
        }
        Value::Array(schemas) => schemas.into_iter().map(|schema| plain(schema, parts)).collect(),
        other => other,
    }
}

fn keyword(word: String, value: Value, parts: &str) -> (String, Value) {
    match (word.as_str(), value) {
        ("example", value) => ("examples".to_owned(), json!([value])),
        ("$ref", Value::String(to)) => (word, json!(to.replace(COMPONENTS, parts))),
        // Its members are named by properties, not by words of JSON Schema.
        ("properties", Value::Object(all)) => {
            let all: Map<_, _> = all.into_iter().map(|(name, schema)| (name, plain(schema, parts))).collect();
            (word, Value::Object(all))
        }
        (_, value) => (word, plain(value, parts)),
    }
}

fn references(schema: &Value, parts: &str) -> BTreeSet<String> {
    match schema {
        Value::Object(words) => words.values().flat_map(|value| references(value, parts)).collect(),
        Value::Array(schemas) => schemas.iter().flat_map(|schema| references(schema, parts)).collect(),
        Value::String(text) => text.strip_prefix(parts).map(str::to_owned).into_iter().collect(),
        _ => BTreeSet::new(),
    }
}
