//! Acting: the form of an operation, and its outcome. There is one handler for all operations.

use axum::{
    Form,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use bootstrap::Problem;
use contracts::SERVICES;
use maud::{Markup, html};
use uuid::Uuid;

use super::{Desk, page, session::Session};
use crate::operations::{Arguments, At, IDEMPOTENCY_KEY, Operation, Refusal, operation, perform};

fn known(name: &str) -> Result<&'static Operation, Problem> {
    operation(name)
        .filter(|operation| operation.acts())
        .ok_or_else(|| Problem::not_found("There is no such operation."))
}

/// The form of an operation.
#[utoipa::path(get, path = "/operations/{name}", tag = "desk", operation_id = "operation_page",
    params(("name" = String, Path, description = "The operation's name")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 404, description = "No such operation", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn form(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Query(arguments): Query<Arguments>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let operation = known(&name)?;
    let Some(session) = desk.sessions.of(&headers) else {
        return Ok(axum::response::Redirect::to("/login").into_response());
    };
    let main = filled_form(operation, &arguments, &session, None);
    Ok(page(operation.title, Some(&session), false, &main).into_response())
}

/// Carries an operation out. What cannot be undone is first shown again, to be confirmed.
#[utoipa::path(post, path = "/operations/{name}", tag = "desk", operation_id = "operate",
    params(("name" = String, Path, description = "The operation's name")),
    responses((status = 200, description = "It was carried out, or is to be confirmed", body = String, content_type = "text/html"),
        (status = 401, description = "Not logged in", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "Not a form of the session", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such operation", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn operate(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Form(mut arguments): Form<Arguments>,
) -> Result<Response, Problem> {
    let operation = known(&name)?;
    let session = desk.sessions.of_form(&headers, arguments.remove("csrf").as_deref())?;
    let outcome = perform(&desk.suite, &desk.confirmations, operation, &arguments, &session.who).await;
    let (status, main) = match outcome {
        Ok(answer) => (StatusCode::OK, done(operation, &arguments, &answer)),
        Err(Refusal::Unconfirmed(token, _)) => {
            arguments.insert("confirm".to_owned(), token);
            (StatusCode::OK, confirmation(operation, &arguments, &session))
        }
        Err(refusal) => {
            let status = match &refusal {
                Refusal::Suite(error) => error.status().unwrap_or(StatusCode::BAD_GATEWAY),
                Refusal::Role(..) => StatusCode::FORBIDDEN,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            (status, filled_form(operation, &arguments, &session, Some(&refusal.to_string())))
        }
    };
    Ok((status, page(operation.title, Some(&session), false, &main)).into_response())
}

fn filled_form(operation: &Operation, arguments: &Arguments, session: &Session, failure: Option<&str>) -> Markup {
    let given = |name: &str| arguments.get(name).map_or("", String::as_str);
    html! {
        h1 { (operation.title) }
        p { (operation.about) }
        @if let Some(failure) = failure { p.bad role="alert" { (failure) } }
        form.operation method="post" action={ "/operations/" (operation.name) } {
            input type="hidden" name="csrf" value=(session.csrf);
            @if operation.at == At::Any {
                label {
                    "Service"
                    select name="service" {
                        @for service in SERVICES {
                            option value=(service.0) selected[service.0 == given("service")] { (service.0) }
                        }
                    }
                }
            }
            @if let Some(key) = operation.key() { label { (key) input name=(key) value=(given(key)) required size="40"; } }
            @if operation.is_keyed() {
                @let key = arguments.get(IDEMPOTENCY_KEY).cloned().unwrap_or_else(|| Uuid::now_v7().to_string());
                input type="hidden" name=(IDEMPOTENCY_KEY) value=(key);
            }
            @for field in operation.fields {
                label { (field.name) input name=(field.name) value=(given(field.name)); small { (field.about) } }
            }
            label { "Why" input name="reason" value=(given("reason")) required maxlength="500" size="60" autofocus; }
            button { (operation.title) }
        }
    }
}

fn confirmation(operation: &Operation, arguments: &Arguments, session: &Session) -> Markup {
    html! {
        h1 { (operation.title) "?" }
        p.bad { (operation.about) " It cannot be undone." }
        ul {
            @for (name, value) in arguments.iter().filter(|(name, _)| *name != "confirm") { li { (name) ": " code { (value) } } }
        }
        form.operation method="post" action={ "/operations/" (operation.name) } {
            input type="hidden" name="csrf" value=(session.csrf);
            @for (name, value) in arguments { input type="hidden" name=(name) value=(value); }
            button { "Yes: " (operation.title) }
        }
    }
}

fn done(operation: &Operation, arguments: &Arguments, answer: &serde_json::Value) -> Markup {
    let shown = serde_json::to_string_pretty(answer).unwrap_or_default();
    html! {
        h1 { (operation.title) }
        @if operation.name == "replay_dead_letter" && answer["status"] == "PENDING" {
            p.bad role="alert" { "Recorded, but the step failed again: the dead letter still waits." }
        } @else if answer["missing"].as_array().is_some_and(|missing| !missing.is_empty()) {
            p.bad role="alert" { "Recorded, but not all replicas have confirmed it." }
        } @else {
            p.good role="status" { "Done, and recorded." }
        }
        @if let Some(set) = answer["frozen_set"].as_str() {
            p {
                (answer["ids"].as_array().map_or(0, Vec::len)) " of " (answer["matched"]) " are selected. "
                @for next in operation.of_its_set() {
                    a.act href={ "/operations/" (next.name) "?frozen_set=" (set)
                        "&service=" (arguments.get("service").map_or("", String::as_str)) } { (next.title) } " "
                }
            }
        }
        details { summary { "The service's answer" } pre { (shown) } }
        p { a href="/" { "Overview" } " · " a href="/actions" { "What was done" } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dry_run_leads_to_what_its_set_is_for() {
        let arguments = Arguments::from([("service".to_owned(), "order".to_owned())]);
        let answer = json!({"matched": 3, "ids": ["a", "b"], "frozen_set": "7"});
        let page = |name| done(operation(name).expect("known"), &arguments, &answer).into_string();
        let leads = |page: &str, name| page.contains(&format!("/operations/{name}?frozen_set=7&amp;service=order"));
        let parked = page("rehearse_requeue");
        assert!(parked.contains("2 of 3 are selected"), "{parked}");
        assert!(leads(&parked, "requeue_outbox_entries") && leads(&parked, "discard_outbox_entries"), "{parked}");
        let letters = page("rehearse_discard");
        assert!(leads(&letters, "discard_dead_letters") && !letters.contains("outbox"), "{letters}");
    }
}
