//! One event as it was published, with its history; one dead letter.

use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use bootstrap::Problem;
use maud::html;
use serde_json::Value;
use uuid::Uuid;

use super::{Desk, page};
use crate::operations::{Arguments, Refusal, operation, perform};

/// An event with its body. Only for who is logged in: it is read from the service's administration.
#[utoipa::path(get, path = "/events/{service}/{event_id}", tag = "desk", operation_id = "event_page",
    params(("service" = String, Path, description = "The service that published it"),
        ("event_id" = Uuid, Path, description = "The event's id")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 303, description = "Not logged in"),
        (status = 404, description = "The service has no such event", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(desk): State<Desk>,
    Path((service, event_id)): Path<(String, Uuid)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    const PARTS: [(&str, &str); 3] = [("Body", "payload"), ("Headers", "headers"), ("History", "history")];
    inspected(&desk, &headers, "inspect_event", &service, ("event_id", event_id), &PARTS).await
}

/// A dead letter with its event and what was done to it. Only for who is logged in.
#[utoipa::path(get, path = "/dead-letters/{service}/{id}", tag = "desk", operation_id = "dead_letter_page",
    params(("service" = String, Path, description = "The service whose step failed"),
        ("id" = Uuid, Path, description = "The dead letter's id")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 303, description = "Not logged in"),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn dead_letter(
    State(desk): State<Desk>,
    Path((service, id)): Path<(String, Uuid)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    const PARTS: [(&str, &str); 4] =
        [("Why", "error_chain"), ("Body", "payload"), ("Headers", "headers"), ("Actions", "actions")];
    inspected(&desk, &headers, "inspect_dead_letter", &service, ("id", id), &PARTS).await
}

/// The answer of a reading operation, by its parts.
async fn inspected(
    desk: &Desk,
    headers: &HeaderMap,
    operation_name: &str,
    service: &str,
    (key, id): (&str, Uuid),
    parts: &[(&str, &str)],
) -> Result<Response, Problem> {
    let Some(session) = desk.session(headers) else { return Ok(Redirect::to("/login").into_response()) };
    let inspect = operation(operation_name).ok_or_else(|| Problem::not_found("There is no such operation."))?;
    let arguments = Arguments::from([("service".to_owned(), service.to_owned()), (key.to_owned(), id.to_string())]);
    let found = perform(&desk.suite, &desk.confirmations, inspect, &arguments, &session.who).await;
    let found = found.map_err(|refusal| match &refusal {
        Refusal::Suite(error) => Problem::new(error.status().unwrap_or(StatusCode::BAD_GATEWAY), refusal.to_string()),
        _ => Problem::not_found(refusal.to_string()),
    })?;
    let text = |part: &str| found[part].as_str().unwrap_or_default().to_owned();
    let shown = |part: &Value| match part {
        Value::String(text) => text.clone(),
        part => serde_json::to_string_pretty(part).unwrap_or_default(),
    };
    let main = html! {
        h1 { (text("event_type")) }
        p.quiet { code { (id) } " of " (service) ": " (text("state")) (text("status")) }
        @for (title, part) in parts {
            h2 { (title) }
            pre { (shown(&found[*part])) }
        }
    };
    Ok(page(&text("event_type"), Some(&session), false, &main).into_response())
}
