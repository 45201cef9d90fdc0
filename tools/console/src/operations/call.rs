//! Carries an operation out: checks the role, the reason and the confirmation, and asks the service.

use std::collections::BTreeMap;

use contracts::SERVICES;
use reqwest::{Method, RequestBuilder};
use saga::Service;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{At, Confirmations, FieldKind, Operation, Role, Verb};
use crate::suite::{Suite, SuiteError};

/// The argument with which a repeated call has the effect of one.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// The arguments by name; empty ones count as left out.
pub(crate) type Arguments = BTreeMap<String, String>;

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) actor: String,
    pub(crate) role: Role,
}

impl Who {
    /// `None` for a name that the services would not record as it is: it goes into a header.
    pub(crate) fn new(actor: &str, role: Role) -> Option<Who> {
        let is_name = (1..=100).contains(&actor.len()) && actor.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        is_name.then(|| Who { actor: actor.to_owned(), role })
    }
}

/// Why an operation was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} is for the role {1:?}")]
    Role(&'static str, Role),
    #[error("{0}")]
    Argument(String),
    /// It cannot be undone; this token confirms what would be sent.
    #[error("it has to be confirmed")]
    Unconfirmed(String, Value),
    #[error("the suite's database cannot be read now")]
    Unreadable,
    #[error(transparent)]
    Suite(#[from] SuiteError),
}

/// Carries the operation out, and returns the service's answer.
///
/// # Errors
/// Why it was not carried out; [`Refusal::Unconfirmed`] is the first answer to what cannot be undone.
pub(crate) async fn perform(
    suite: &Suite,
    confirmations: &Confirmations,
    operation: &'static Operation,
    arguments: &Arguments,
    who: &Who,
) -> Result<Value, Refusal> {
    if who.role < operation.role {
        return Err(Refusal::Role(operation.name, operation.role));
    }
    let request = Request::new(operation, arguments)?;
    if operation.destroys {
        let what = format!("{who:?} {request:?}");
        if !given(arguments, "confirm").is_some_and(|token| confirmations.confirmed(token, &what)) {
            let Request { service, path, body, .. } = request;
            let shown = json!({ "service": service.0, "path": path, "body": body });
            return Err(Refusal::Unconfirmed(confirmations.shown(what), shown));
        }
    }
    let Request { service, path, reason, body } = request;
    let method = match operation.verb {
        Verb::Get => Method::GET,
        Verb::Post => Method::POST,
        Verb::Delete => Method::DELETE,
    };
    let outfit = |request: RequestBuilder| {
        if !operation.acts() {
            return request.query(&body);
        }
        // Without a key of the caller each call is its own.
        let key = given(arguments, IDEMPOTENCY_KEY).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        let request = request.header("x-actor", &who.actor).header("x-reason", reason).header("idempotency-key", key);
        request.json(&body)
    };
    Ok(withheld(suite.operate(service, method, &path, outfit).await?))
}

/// The answer without the tokens of cards, which whoever reads an event need not know. A dead letter holds its event as text, which
/// becomes JSON here, and once more in base64.
fn withheld(answer: Value) -> Value {
    const CARD: &str = "payment_method";
    match answer {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(name, _)| name != "payload_base64");
            let withhold = |(name, value): (String, Value)| match name.as_str() {
                CARD => (name, json!("withheld")),
                _ => (name, withheld(value)),
            };
            Value::Object(fields.map(withhold).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(withheld).collect()),
        Value::String(text) if text.contains(CARD) => {
            serde_json::from_str(&text).map_or_else(|_| json!("withheld"), withheld)
        }
        other => other,
    }
}

/// What is sent.
#[derive(Debug, PartialEq)]
struct Request {
    service: Service,
    path: String,
    reason: String,
    body: Value,
}

impl Request {
    fn new(operation: &Operation, arguments: &Arguments) -> Result<Request, Refusal> {
        let wanted = |name: &str| {
            given(arguments, name).ok_or_else(|| Refusal::Argument(format!("{} needs {name}", operation.name)))
        };
        let service = match operation.at {
            At::Only(service) => service,
            At::Any => {
                let name = wanted("service")?;
                let known = SERVICES.into_iter().find(|service| service.0 == name);
                known.ok_or_else(|| Refusal::Argument(format!("there is no service {name}")))?
            }
        };
        let reason = if operation.acts() { wanted("reason")?.to_owned() } else { String::new() };
        if reason.chars().count() > 500 || reason.chars().any(char::is_control) {
            return Err(Refusal::Argument("a reason is a line of at most 500 characters".to_owned()));
        }
        let mut path = operation.path.to_owned();
        if let Some(key) = operation.key() {
            let value = wanted(key)?;
            // An id or a step's name: nothing that would reach another route.
            if !value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                return Err(Refusal::Argument(format!("{key} must not be {value:?}")));
            }
            path = path.replace(&format!("{{{key}}}"), value);
        }
        let body = body(operation, arguments, &reason)?;
        Ok(Request { service, path, reason, body })
    }
}

/// The operation's own fields; the reason, where it has none.
fn body(operation: &Operation, arguments: &Arguments, reason: &str) -> Result<Value, Refusal> {
    // A test parses all of them.
    let mut body: Value = serde_json::from_str(operation.base).unwrap_or_default();
    if operation.acts() && (operation.fields.is_empty() || body.get("reason").is_some()) {
        body["reason"] = json!(reason);
    }
    for field in operation.fields {
        let Some(value) = given(arguments, field.name) else { continue };
        let value = match field.kind {
            FieldKind::Text => json!(value),
            FieldKind::Number => match value.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => return Err(Refusal::Argument(format!("{} is a number", field.name))),
            },
        };
        match field.pointer {
            "" => body[field.name] = value,
            pointer => set(&mut body, pointer, value),
        }
    }
    Ok(body)
}

/// Sets what a JSON pointer names, and makes the objects and arrays on the way.
fn set(body: &mut Value, pointer: &str, value: Value) {
    let parts = pointer.split('/').skip(1);
    let place = parts.fold(body, |place, part| match part.parse::<usize>() {
        Ok(index) => {
            let mut items = place.as_array().cloned().unwrap_or_default();
            items.resize(items.len().max(index + 1), Value::Null);
            *place = Value::Array(items);
            &mut place[index]
        }
        Err(_) => &mut place[part],
    });
    *place = value;
}

pub(crate) fn given<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
    arguments.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use contracts::{ORDER, PAYMENT};

    use super::*;
    use crate::operations::{OPERATIONS, operation};

    fn request(name: &str, arguments: &[(&str, &str)]) -> Result<Request, String> {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Request::new(operation(name).expect("known"), &arguments).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn arguments_become_path_and_body() {
        let sent = request("replay_dead_letter", &[("service", "payment"), ("id", "7"), ("reason", " mended ")]);
        let (path, reason) = ("admin/dlq/7/replay".to_owned(), "mended".to_owned());
        assert_eq!(sent, Ok(Request { service: PAYMENT, path, reason, body: json!({"reason": "mended"}) }));
        let fault = [("service", "order"), ("point", "in_step"), ("kind", "error"), ("first", "2"), ("latency_ms", "")];
        let sent = request("arm_fault", &[&fault[..], &[("reason", "a test")]].concat()).expect("a request");
        assert_eq!((sent.service, sent.body), (ORDER, json!({"point": "in_step", "kind": "error", "first": 2})));
        let sent = request("place_order", &[("sku", "A"), ("quantity", "2"), ("customer_id", "c"), ("reason", "r")]);
        let body = json!({"customer_id": "c", "lines": [{"sku": "A", "quantity": 2}]});
        assert_eq!(sent.expect("a request").body, body);
        let sent = request("replay_dead_letters", &[("service", "order"), ("saga_id", "7"), ("reason", "r")]);
        assert_eq!(sent.expect("a request").body, json!({"filter": {"saga_id": "7"}, "reason": "r"}));
        let sent = request("rehearse_replay", &[("service", "order"), ("saga_id", "7"), ("reason", "r")]);
        assert_eq!(sent.expect("a request").body, json!({"filter": {"saga_id": "7"}, "dry_run": true}));
        let many =
            [("service", "order"), ("reason", "r"), ("older_than_seconds", "60"), ("event_type", "OrderCreated")];
        let filter = json!({"older_than_seconds": 60, "event_type": "OrderCreated"});
        let sent = request("rehearse_requeue", &many).expect("a request").body;
        assert_eq!(sent, json!({"filter": filter, "dry_run": true, "reason": "r"}));
        let sent = request("requeue_outbox_entries", &many).expect("a request").body;
        assert_eq!(sent, json!({"filter": filter, "dry_run": false, "reason": "r"}));
        let sent = request("discard_outbox_entries", &[("service", "order"), ("frozen_set", "7"), ("reason", "r")]);
        assert_eq!(sent.expect("a request").body, json!({"frozen_set": "7", "dry_run": false, "reason": "r"}));
        assert!(OPERATIONS.iter().all(|operation| serde_json::from_str::<Value>(operation.base).is_ok()));
        let sent = request("list_outbox", &[("service", "order"), ("state", "PARKED")]).expect("a request");
        assert_eq!((sent.path.as_str(), sent.body), ("admin/outbox", json!({"state": "PARKED"})));
    }

    #[test]
    fn tokens_of_cards_are_withheld_wherever_they_are() {
        let event = json!({"payload": [{"payment_method": "tok_visa", "total": 1}]});
        assert_eq!(withheld(event), json!({"payload": [{"payment_method": "withheld", "total": 1}]}));
        let text = r#"{"payment_method": "tok_visa", "total": 1}"#;
        let letter = json!({"payload": text, "payload_base64": "eyJ9", "reason": "poison"});
        let expected = json!({"payload": {"payment_method": "withheld", "total": 1}, "reason": "poison"});
        assert_eq!(withheld(letter), expected);
        assert_eq!(withheld(json!({"payload": "{\"payment_method\": \"tok_vi"})), json!({"payload": "withheld"}));
    }

    #[test]
    fn what_is_missing_or_leads_elsewhere_is_refused() {
        let refused = |name: &str, arguments: &[(&str, &str)]| request(name, arguments).expect_err("refused");
        assert_eq!(refused("resume_saga", &[("id", "7")]), "resume_saga needs reason");
        assert_eq!(refused("pause_relay", &[("reason", "r")]), "pause_relay needs service");
        assert_eq!(refused("resume_saga", &[("id", "../faults"), ("reason", "r")]), "id must not be \"../faults\"");
        assert_eq!(refused("pause_relay", &[("service", "x"), ("reason", "r")]), "there is no service x");
        let lines = refused("resume_saga", &[("id", "7"), ("reason", "a\r\nx-actor: b")]);
        assert_eq!(lines, "a reason is a line of at most 500 characters");
    }

    #[test]
    fn what_each_role_may_do_is_exactly_this() {
        let of = |role| OPERATIONS.iter().filter(move |o| o.role == role).map(|o| o.name).collect::<Vec<_>>();
        let reading = [
            "explain_order",
            "inspect_saga",
            "list_products",
            "list_payments",
            "list_dead_letters",
            "inspect_dead_letter",
            "list_outbox",
            "inspect_event",
            "list_consumers",
            "inspect_relay",
            "list_breakers",
            "list_faults",
        ];
        assert_eq!(of(Role::Viewer), reading);
        assert!(OPERATIONS.iter().all(|o| o.acts() != (o.role == Role::Viewer)), "a viewer only reads");
        let throwing = [
            "discard_dead_letter",
            "discard_dead_letters",
            "discard_outbox_entries",
            "discard_outbox_entry",
            "arm_fault",
        ];
        assert_eq!(of(Role::Admin), throwing);
        assert_eq!(
            of(Role::Operator),
            [
                "place_order",
                "cancel_order",
                "resume_saga",
                "replay_dead_letter",
                "rehearse_replay",
                "replay_dead_letters",
                "rehearse_discard",
                "rehearse_requeue",
                "requeue_outbox_entries",
                "requeue_outbox_entry",
                "pause_consumer",
                "resume_consumer",
                "pause_relay",
                "resume_relay",
                "reset_breaker",
                "check_timeouts",
                "rehearse_housekeeping",
                "run_housekeeping",
                "disarm_fault",
                "rebuild_catalogue",
            ]
        );
    }
}
