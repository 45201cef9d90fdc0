//! Records every action over the administration routes before it is carried out, whoever calls them: a script, the console or an
//! agent; also what an operator does by the other routes, with the admin token.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bootstrap::{Problem, detached_within, http::ByOperator};
use saga_store::operator_action::{self, OperatorAction};
use serde::Deserialize;
use uuid::Uuid;

use super::actor;
use crate::Participant;

const ADMIN: &str = "/api/admin/";
/// Longer bodies are not recorded, in bytes.
const MAX_RECORDED: usize = 4096;
/// How long the record may take, where the action is carried out without it.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest reason, in characters.
const MAX_REASON: usize = 500;
/// When an action that could not be recorded may be tried again, in seconds.
const RETRY_AFTER: u32 = 1;
/// No action takes longer: its own limits end it before.
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// What each replica has in memory. It must be possible to end a fault of the database while the database cannot be reached.
const IN_MEMORY: [&str; 2] = ["/api/admin/faults", "/api/admin/breakers"];

/// The reason in a request's body, whatever else is in it; routes without a body take it from the header `x-reason`.
#[derive(Debug, Deserialize)]
struct Reasoned {
    reason: Option<String>,
}

/// Middleware: 503 when the action cannot be recorded, except for state in memory, where it is logged instead.
pub(crate) async fn record(State(participant): State<Arc<Participant>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_admin = path.starts_with(ADMIN);
    let is_operators = is_admin || request.extensions().get::<ByOperator>().is_some();
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) || !is_operators {
        return next.run(request).await;
    }
    let in_memory = IN_MEMORY.iter().any(|of| path.starts_with(of));
    let action = format!("{} {path}", request.method());
    let actor = actor(request.headers());
    let (parts, body) = request.into_parts();
    // The shell limits bodies and has read this one whole.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return Problem::invalid("", "The body could not be read.").into_response();
    };
    let reasoned = serde_json::from_slice::<Reasoned>(&body).ok();
    let text = std::str::from_utf8(&body).ok().map(str::trim).filter(|text| (1..=MAX_RECORDED).contains(&text.len()));
    // A text of PostgreSQL holds no NUL. An order holds a card's token.
    let text = text.filter(|text| is_admin && !text.contains('\0'));
    let action_id = Uuid::now_v7();
    let named = parts.headers.get("x-reason").map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
    let reason = reasoned.and_then(|reasoned| reasoned.reason).or(named).filter(|reason| !reason.contains('\0'));
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        return Problem::invalid("/reason", format!("A reason has at most {MAX_REASON} characters.")).into_response();
    }
    let recorded = OperatorAction {
        service: participant.service,
        actor: &actor,
        action: &action,
        reason: reason.as_deref(),
        request: text,
    };
    let begun = operator_action::begin(&participant.pools.http, action_id, &recorded);
    let begun = if in_memory {
        tokio::time::timeout(RECORD_TIMEOUT, begun).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    } else {
        begun.await
    };
    match begun {
        Err(error) if !in_memory => {
            tracing::error!(%error, actor, action, reason, "an operator's action is refused: it cannot be recorded");
            return Problem::unavailable("The action cannot be recorded, so it is not done.", RETRY_AFTER)
                .into_response();
        }
        Err(error) => tracing::warn!(%error, actor, action, reason, "an operator's action is not recorded"),
        Ok(()) => {}
    }
    let request = Request::from_parts(parts, Body::from(body));
    // It goes on when its client is gone, and its outcome is recorded.
    let carried_out = detached_within(MAX_DURATION, async move {
        let response = next.run(request).await;
        record_answer(&participant, action_id, response.status()).await;
        Ok::<_, Problem>(response)
    });
    carried_out.await.unwrap_or_else(IntoResponse::into_response)
}

async fn record_answer(participant: &Participant, action_id: Uuid, status: StatusCode) {
    let status = i16::try_from(status.as_u16()).unwrap_or(i16::MAX);
    let answered = operator_action::answered(&participant.pools.http, action_id, status);
    if let Err(error) = tokio::time::timeout(RECORD_TIMEOUT, answered).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
        tracing::warn!(%error, %action_id, status, "the answer to an operator's action is not recorded");
    }
}
