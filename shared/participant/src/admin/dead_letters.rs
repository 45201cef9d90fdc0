//! Dead letters: look at them, and give up those that nobody wants any more.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{
    Json, Page, PageQuery, Path, Problem, Query, detached,
    http::{Cursor, Limit},
};
use messaging::dead_letter::{self, DeadLetter, Filter, ReplayError, Selection};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Shared, actor};

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum DeadLetterStatus {
    Pending,
    Replayed,
    Resolved,
    Discarded,
}

impl DeadLetterStatus {
    const fn as_str(self) -> &'static str {
        match self {
            DeadLetterStatus::Pending => "PENDING",
            DeadLetterStatus::Replayed => "REPLAYED",
            DeadLetterStatus::Resolved => "RESOLVED",
            DeadLetterStatus::Discarded => "DISCARDED",
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterQuery {
    #[param(inline)]
    status: Option<DeadLetterStatus>,
    /// The step that failed.
    step: Option<String>,
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    event_type: Option<String>,
    saga_id: Option<Uuid>,
    /// In the words of the entry: `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    reason: Option<String>,
    /// Only older ones.
    #[serde(default, with = "time::serde::rfc3339::option")]
    created_before: Option<OffsetDateTime>,
    /// Entries per page.
    #[serde(default)]
    #[param(value_type = Option<Limit>)]
    limit: Limit,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
}

/// An event that a step could not apply, with the whole context of the failure.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterBody {
    id: Uuid,
    #[schema(required = true)]
    event_id: Option<Uuid>,
    event_type: String,
    subject: String,
    /// A text each, or a list of texts for a header that was there several times.
    #[schema(value_type = Object)]
    headers: serde_json::Value,
    /// The body as text; what is not UTF-8 is replaced.
    payload: String,
    /// The body, byte for byte.
    payload_base64: String,
    step: String,
    /// In a word: `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    reason: String,
    error_chain: String,
    source_service: String,
    #[schema(required = true)]
    saga_id: Option<Uuid>,
    #[schema(required = true)]
    correlation_id: Option<String>,
    #[schema(required = true)]
    trace_id: Option<String>,
    attempts: i32,
    /// `PENDING`, `REPLAYED` (being replayed just now), `RESOLVED` or `DISCARDED`.
    status: String,
    replay_count: i32,
    /// What became of it last.
    #[schema(required = true)]
    notes: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// One thing that was done to a dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterAction {
    #[serde(with = "time::serde::rfc3339")]
    acted_at: OffsetDateTime,
    actor: String,
    /// `replay`, `dry run` or `discard`.
    action: String,
    #[schema(required = true)]
    reason: Option<String>,
    outcome: String,
    /// The batch that it was part of.
    #[schema(required = true)]
    replay_id: Option<Uuid>,
}

/// A dead letter and what was done to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterHistory {
    #[serde(flatten)]
    entry: DeadLetterBody,
    actions: Vec<DeadLetterAction>,
}

/// How many dead letters wait for somebody.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterCount {
    count: i64,
}

/// Why somebody acts.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Why {
    pub reason: Option<String>,
}

/// Dead letters, newest first
#[utoipa::path(get, path = "/api/admin/dlq", tag = "administration", params(DeadLetterQuery),
    responses((status = 200, description = "A page of dead letters", body = Page<DeadLetterBody>)))]
pub(crate) async fn list_dead_letters(
    State(desk): Shared,
    Query(query): Query<DeadLetterQuery>,
) -> Result<Json<Page<DeadLetterBody>>, Problem> {
    let page = PageQuery::new(query.limit, query.cursor);
    let filter = Filter {
        status: query.status.map(|s| s.as_str().to_owned()),
        selection: Selection {
            step: query.step,
            event_type: query.event_type,
            saga_id: query.saga_id,
            reason: query.reason,
            created_before: query.created_before,
        },
        before: page.after()?,
        limit: page.rows(),
    };
    let rows = dead_letter::list(&desk.participant.pools.http, &filter).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.dead_letter_id).map(body)))
}

/// How many dead letters are PENDING
#[utoipa::path(get, path = "/api/admin/dlq/count", tag = "administration",
    responses((status = 200, description = "The count", body = DeadLetterCount)))]
pub(crate) async fn count_dead_letters(State(desk): Shared) -> Result<Json<DeadLetterCount>, Problem> {
    let count = dead_letter::count_pending(&desk.participant.pools.http).await?;
    Ok(Json(DeadLetterCount { count }))
}

/// One dead letter and what was done to it
#[utoipa::path(get, path = "/api/admin/dlq/{id}", tag = "administration",
    params(("id" = Uuid, Path, description = "The dead letter's id")),
    responses((status = 200, description = "The dead letter", body = DeadLetterHistory),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_dead_letter(
    State(desk): Shared,
    Path(id): Path<Uuid>,
) -> Result<Json<DeadLetterHistory>, Problem> {
    let pool = &desk.participant.pools.http;
    let letter = dead_letter::get(pool, id).await?.ok_or_else(not_found)?;
    let actions = dead_letter::actions(pool, id).await?;
    let actions = actions.into_iter().map(|a| DeadLetterAction {
        acted_at: a.acted_at,
        actor: a.actor,
        action: a.action,
        reason: a.reason,
        outcome: a.outcome,
        replay_id: a.replay_id,
    });
    Ok(Json(DeadLetterHistory { entry: body(letter), actions: actions.collect() }))
}

/// Give the event up
#[utoipa::path(delete, path = "/api/admin/dlq/{id}", tag = "administration",
    params(("id" = Uuid, Path, description = "The dead letter's id")), request_body = Option<Why>,
    responses((status = 200, description = "The dead letter, discarded", body = DeadLetterHistory),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not PENDING", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn discard_dead_letter(
    State(desk): Shared,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> Result<Json<DeadLetterHistory>, Problem> {
    let reason = why.and_then(|Json(why)| why.reason).unwrap_or_else(|| "no reason given".to_owned());
    let (replays, actor) = (desk.replays.clone(), actor(&headers));
    detached(async move { dead_letter::discard(&replays, id, &actor, &reason).await.map_err(problem) }).await?;
    get_dead_letter(State(desk), Path(id)).await
}

fn not_found() -> Problem {
    Problem::not_found("There is no such dead letter.")
}

pub(super) fn problem(error: ReplayError) -> Problem {
    match error {
        ReplayError::NotFound => not_found(),
        ReplayError::Database(error) => error.into(),
        other => Problem::conflict(format!("Not possible: {other}.")),
    }
}

fn body(row: DeadLetter) -> DeadLetterBody {
    DeadLetterBody {
        id: row.dead_letter_id,
        event_id: row.event_id,
        event_type: row.event_type,
        subject: row.subject,
        headers: row.headers,
        payload: String::from_utf8_lossy(&row.payload).into_owned(),
        payload_base64: row.payload_base64,
        step: row.step,
        reason: row.reason,
        error_chain: row.error_chain,
        source_service: row.source_service,
        saga_id: row.saga_id,
        correlation_id: row.correlation_id,
        trace_id: row.trace_id,
        attempts: row.attempts,
        status: row.status,
        replay_count: row.replay_count,
        notes: row.notes,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}
