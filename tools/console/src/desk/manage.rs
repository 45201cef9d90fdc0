//! What can be managed: a page for each kind of thing, with all services' entries and the operations on each of them.

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use bootstrap::Problem;
use contracts::SERVICES;
use futures_util::future::join_all;
use maud::{Markup, html};
use saga::Service;
use serde_json::Value;

use super::{Desk, live, session::Session};
use crate::operations::operation;

/// A kind of thing.
struct Kind {
    path: &'static str,
    title: &'static str,
    about: &'static str,
    /// The list, below `/api/admin/` of each service.
    list: &'static str,
    /// The field that identifies an entry in operations; none where a service has one only.
    key: Option<&'static str>,
    /// The fields to show, as JSON pointers, with their headings.
    columns: &'static [(&'static str, &'static str)],
    operations: &'static [&'static str],
    /// Those that concern none or many of them.
    of_many: &'static [&'static str],
}

static KINDS: [Kind; 6] = [
    Kind {
        path: "dead-letters",
        title: "Dead letters",
        about: "Events that a step could not apply, and that wait for a decision.",
        list: "dlq?status=PENDING&limit=100",
        key: Some("id"),
        columns: &[
            ("/step", "Step"),
            ("/event_type", "Event"),
            ("/reason", "Reason"),
            ("/error_chain", "Error"),
            ("/attempts", "Attempts"),
            ("/replay_count", "Replays"),
        ],
        operations: &["replay_dead_letter", "discard_dead_letter"],
        of_many: &["replay_dead_letters", "rehearse_discard", "discard_dead_letters"],
    },
    Kind {
        path: "outboxes",
        title: "Parked events",
        about: "Events that the broker refused. Those of the same aggregate wait behind them.",
        list: "outbox?state=PARKED&limit=100",
        key: Some("event_id"),
        columns: &[
            ("/event_type", "Event"),
            ("/aggregate_id", "Aggregate"),
            ("/attempts", "Attempts"),
            ("/last_error", "Error"),
            ("/created_at", "Since"),
        ],
        operations: &["requeue_outbox_entry", "discard_outbox_entry"],
        of_many: &["rehearse_requeue", "requeue_outbox_entries", "discard_outbox_entries"],
    },
    Kind {
        path: "consumers",
        title: "Consumers",
        about: "Each step's durable consumer. A paused one's events wait in the stream.",
        list: "consumers",
        key: Some("step"),
        columns: &[("/step", "Step"), ("/stream", "Stream"), ("/paused", "Paused"), ("/pulling", "Pulling")],
        operations: &["pause_consumer", "resume_consumer"],
        of_many: &[],
    },
    Kind {
        path: "relays",
        title: "Relays",
        about: "One replica of each service publishes its outbox.",
        list: "relay",
        key: None,
        columns: &[
            ("/holder", "Replica"),
            ("/active", "Active"),
            ("/paused", "Paused"),
            ("/epoch", "Epoch"),
            ("/lag", "Waiting events"),
            ("/last_failure", "Last failure"),
            ("/last_failure_at", "At"),
        ],
        operations: &["pause_relay", "resume_relay"],
        of_many: &[],
    },
    Kind {
        path: "breakers",
        title: "Circuit breakers",
        about: "An open one keeps its step from being tried, until it probes.",
        list: "breakers",
        key: Some("step"),
        columns: &[
            ("/step", "Step"),
            ("/replica", "Replica"),
            ("/state", "State"),
            ("/why", "Why"),
            ("/retry_in_seconds", "Probes in, s"),
        ],
        operations: &["reset_breaker"],
        of_many: &[],
    },
    Kind {
        path: "faults",
        title: "Faults",
        about: "What was armed to go wrong.",
        list: "faults",
        key: Some("id"),
        columns: &[
            ("/point", "Point"),
            ("/kind", "Kind"),
            ("/scope", "Scope"),
            ("/hits", "Hits"),
            ("/replicas", "Replicas"),
            ("/missing", "Missing"),
        ],
        operations: &["disarm_fault"],
        of_many: &["arm_fault"],
    },
];

/// Links to all of these pages.
pub(super) fn links() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.path, kind.title))
}

/// All services' entries of one kind.
#[utoipa::path(get, path = "/manage/{kind}", tag = "desk", operation_id = "manage_page",
    params(("kind" = String, Path, description = "dead-letters, outboxes, consumers, relays, breakers or faults")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 404, description = "No such page", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(desk): State<Desk>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let kind = KINDS.iter().find(|kind| kind.path == path);
    let kind = kind.ok_or_else(|| Problem::not_found("There is no such page."))?;
    let session = desk.session(&headers);
    let may_act = session.as_ref().is_some_and(Session::may_act);
    let shared = desk.clone();
    let render = move || {
        let desk = shared.clone();
        async move { Ok(shown(&desk, kind, may_act).await) }
    };
    live(&desk, &headers, kind.title, session.as_ref(), render).await
}

async fn shown(desk: &Desk, kind: &Kind, may_act: bool) -> Markup {
    let asked = SERVICES.map(|service| async move { (service, entries(desk, service, kind.list).await) });
    let found = join_all(asked).await;
    html! {
        h1 { (kind.title) }
        p.quiet { (kind.about) }
        (table(kind, &found, may_act))
        @if may_act {
            p {
                @for operation in kind.of_many.iter().filter_map(|name| operation(name)) {
                    a.act href={ "/operations/" (operation.name) } { (operation.title) } " "
                }
            }
        } @else { p { a href="/login" { "Log in" } " to act on them." } }
    }
}

/// A service's entries, or why there are none.
async fn entries(desk: &Desk, service: Service, list: &str) -> Result<Vec<Value>, String> {
    match desk.suite.listed(service, list).await {
        Ok(Value::Object(mut answer)) => Ok(match answer.remove("items") {
            Some(Value::Array(items)) => items,
            _ => vec![Value::Object(answer)],
        }),
        Ok(other) => Ok(vec![other]),
        Err(error) => Err(error.to_string()),
    }
}

type Entries = [(Service, Result<Vec<Value>, String>)];

fn table(kind: &Kind, found: &Entries, may_act: bool) -> Markup {
    html! {
        @for (_, failure) in found.iter().filter_map(|(s, entries)| entries.as_ref().err().map(|e| (s, e))) {
            p.bad { (failure) }
        }
        @if found.iter().all(|(_, entries)| entries.as_ref().is_ok_and(Vec::is_empty)) {
            p.good { "None." }
        } @else {
            table {
                thead {
                    tr {
                        th { "Service" }
                        @for (_, heading) in kind.columns { th { (heading) } }
                        @if may_act { th { "Act" } }
                    }
                }
                tbody {
                    @for (service, entries) in found {
                        @for entry in entries.iter().flatten() { (row(kind, *service, entry, may_act)) }
                    }
                }
            }
        }
    }
}

fn row(kind: &Kind, service: Service, entry: &Value, may_act: bool) -> Markup {
    let key = kind.key.and_then(|key| entry.get(key)).map(text).unwrap_or_default();
    html! {
        tr {
            td data-name="Service" { (service.0) }
            @for (pointer, heading) in kind.columns {
                td data-name=(heading) { (entry.pointer(pointer).map(text).unwrap_or_default()) }
            }
            @if may_act {
                td data-name="Act" {
                    @for operation in kind.operations.iter().filter_map(|name| operation(name)) {
                        a.act href={ "/operations/" (operation.name) "?service=" (service.0)
                            @if let Some(name) = operation.key() { "&" (name) "=" (key) } } { (operation.title) }
                        " "
                    }
                }
            }
        }
    }
}

/// A JSON value as a person reads it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Number(_) => value.to_string(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name} {}", text(value))).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_a_page_exists_and_has_its_key() {
        for kind in &KINDS {
            for name in kind.operations {
                let operation = operation(name).unwrap_or_else(|| panic!("{name} does not exist"));
                assert_eq!(operation.key(), kind.key, "{name}");
            }
            for name in kind.of_many {
                assert!(operation(name).is_some_and(|operation| operation.key().is_none()), "{name}");
            }
        }
    }

    #[test]
    fn json_is_shown_as_text() {
        let value = serde_json::json!({"a": [1, true, null], "b": {"c": "d"}});
        assert_eq!(text(&value), "a 1, yes, , b c d");
    }
}
