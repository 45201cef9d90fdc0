//! The headers of a dead letter as JSON: a string each, or a list of strings for a header with several values. NULs are replaced,
//! because PostgreSQL cannot store them.

use async_nats::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};

pub(super) fn to_json(headers: &HeaderMap) -> Value {
    let text = |value: &HeaderValue| Value::String(value.as_str().replace('\0', "\u{fffd}"));
    let json = |values: &Vec<HeaderValue>| match values.as_slice() {
        [one] => text(one),
        several => Value::Array(several.iter().map(text).collect()),
    };
    Value::Object(headers.iter().map(|(name, values)| (name.to_string(), json(values))).collect::<Map<_, _>>())
}

pub(super) fn from_json(json: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in json.as_object().into_iter().flatten() {
        let values = match value {
            Value::Array(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        };
        for text in values.iter().filter_map(Value::as_str) {
            headers.append(name.as_str(), text);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_several_values_keeps_them() {
        let mut headers = HeaderMap::new();
        headers.insert("ce-id", "1");
        headers.append("tracestate", "a=1");
        headers.append("tracestate", "b=2");
        let json = to_json(&headers);
        assert_eq!(json, serde_json::json!({"ce-id": "1", "tracestate": ["a=1", "b=2"]}));
        assert_eq!(from_json(&json), headers);
    }

    #[test]
    fn a_nul_is_replaced_because_postgres_cannot_store_one() {
        let mut headers = HeaderMap::new();
        headers.insert("ce-correlationid", "a\0b");
        assert_eq!(to_json(&headers), serde_json::json!({"ce-correlationid": "a\u{fffd}b"}));
    }
}
