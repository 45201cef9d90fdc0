//! The arguments that an operation wants, and those that a caller gives.

use contracts::SERVICES;
use serde_json::{Map, Value};

use super::{Arguments, At, FieldKind, IDEMPOTENCY_KEY, Operation, Refusal};

/// An argument of an operation, or of another tool.
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: FieldKind,
    pub(crate) required: bool,
    /// The values that there are, if it is not free.
    pub(crate) one_of: &'static [&'static str],
}

impl Argument {
    pub(crate) const fn text(name: &'static str, about: &'static str, required: bool) -> Self {
        Argument { name, about, kind: FieldKind::Text, required, one_of: &[] }
    }

    pub(crate) const fn number(name: &'static str, about: &'static str) -> Self {
        Argument { name, about, kind: FieldKind::Number, required: false, one_of: &[] }
    }

    pub(crate) fn service() -> Self {
        const NAMES: [&str; SERVICES.len()] = {
            let mut names = [""; SERVICES.len()];
            let mut at = 0;
            while at < names.len() {
                names[at] = SERVICES[at].0;
                at += 1;
            }
            names
        };
        Argument { one_of: &NAMES, ..Argument::text("service", "The service", true) }
    }
}

/// What an operation wants.
pub(crate) fn arguments_of(operation: &Operation) -> Vec<Argument> {
    let mut all = Vec::new();
    if operation.at == At::Any {
        all.push(Argument::service());
    }
    if let Some(key) = operation.key() {
        all.push(Argument::text(key, "What it concerns: its id, or a step's name", true));
    }
    for field in operation.fields {
        let required = operation.needs(field.name);
        all.push(Argument { required, kind: field.kind, ..Argument::text(field.name, field.about, false) });
    }
    if operation.acts() {
        all.push(Argument::text("reason", "Why, in a line; it is recorded", true));
    }
    if operation.destroys {
        all.push(Argument::text("confirm", "What the first call answered", false));
    }
    if operation.is_keyed() {
        all.push(Argument::text(
            IDEMPOTENCY_KEY,
            "Your own key: with the same one, a repeated call has one effect",
            true,
        ));
    }
    all
}

/// The given arguments as texts. An unknown or empty one is refused: left out, it could make an operation wider than its caller
/// meant.
pub(crate) fn arguments(given: Map<String, Value>, known: &[Argument]) -> Result<Arguments, Refusal> {
    let mut arguments = Arguments::new();
    for (name, value) in given {
        let Some(argument) = known.iter().find(|argument| argument.name == name) else {
            return Err(Refusal::Argument(format!("there is no argument {name}")));
        };
        let text = match (value, argument.kind) {
            (Value::String(text), _) if !text.trim().is_empty() => text,
            (Value::Number(number), FieldKind::Number) => number.to_string(),
            _ => {
                return Err(Refusal::Argument(format!(
                    "{name} is empty, or has the wrong type: leave out what is not meant"
                )));
            }
        };
        arguments.insert(name, text);
    }
    let missing = known.iter().find(|argument| argument.required && !arguments.contains_key(argument.name));
    missing.map_or(Ok(arguments), |argument| Err(Refusal::Argument(format!("{} is missing", argument.name))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operations::operation;

    fn given(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn an_unknown_a_missing_and_a_wrong_argument_are_refused() {
        let arm = arguments_of(operation("arm_fault").expect("known"));
        let fault = json!({"service": "order", "point": "in_step", "kind": "error", "reason": "r", "first": 2});
        let parsed = arguments(given(fault.clone()), &arm).expect("valid");
        assert_eq!(parsed["first"], "2");
        let refused = |name: &str, value: Value| {
            let mut fault = fault.clone();
            fault[name] = value;
            arguments(given(fault), &arm).expect_err("refused").to_string()
        };
        assert_eq!(refused("scope", json!({"order_id": "x"})), "there is no argument scope");
        for empty in [Value::Null, json!(""), json!(" "), json!(["x"])] {
            let why = "order_id is empty, or has the wrong type: leave out what is not meant";
            assert_eq!(refused("order_id", empty), why);
        }
        let fault = given(json!({"service": "order", "point": "in_step", "kind": "error"}));
        assert_eq!(arguments(fault, &arm).expect_err("refused").to_string(), "reason is missing");
    }
}
