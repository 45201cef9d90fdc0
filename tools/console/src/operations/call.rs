//! Carries an operation out: checks the role, the reason and the confirmation, and asks the service.

use std::collections::BTreeMap;

use contracts::SERVICES;
use reqwest::Method;
use saga::Service;
use serde_json::{Map, Value, json};

use super::{At, Confirmations, FieldKind, Operation, Role, Verb};
use crate::suite::{Suite, SuiteError};

/// The arguments by name; empty ones count as left out.
pub(crate) type Arguments = BTreeMap<String, String>;

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) actor: String,
    pub(crate) role: Role,
}

/// Why an operation was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} is for the role {1:?}")]
    Role(&'static str, Role),
    #[error("{0}")]
    Argument(String),
    /// It cannot be undone; this token confirms it.
    #[error("it has to be confirmed")]
    Unconfirmed(String),
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
            return Err(Refusal::Unconfirmed(confirmations.shown(what)));
        }
    }
    let Request { service, path, reason, body } = request;
    let method = match operation.verb {
        Verb::Post => Method::POST,
        Verb::Delete => Method::DELETE,
    };
    Ok(suite.operate(service, method, &path, &who.actor, &reason, &body).await?)
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
        let reason = wanted("reason")?.to_owned();
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
    if operation.fields.is_empty() {
        return Ok(json!({ "reason": reason }));
    }
    let mut body = Map::new();
    for field in operation.fields {
        let Some(value) = given(arguments, field.name) else { continue };
        let value = match field.kind {
            FieldKind::Text => json!(value),
            FieldKind::Number => match value.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => return Err(Refusal::Argument(format!("{} is a number", field.name))),
            },
        };
        body.insert(field.name.to_owned(), value);
    }
    Ok(Value::Object(body))
}

fn given<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
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
        assert_eq!(of(Role::Admin), ["discard_dead_letter", "discard_outbox_entry", "arm_fault"]);
        assert_eq!(
            of(Role::Operator),
            [
                "resume_saga",
                "replay_dead_letter",
                "requeue_outbox_entry",
                "pause_consumer",
                "resume_consumer",
                "pause_relay",
                "resume_relay",
                "reset_breaker",
                "disarm_fault",
                "rebuild_catalogue",
            ]
        );
    }
}
