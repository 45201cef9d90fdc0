//! The outbox: what waits, what is parked, what was published, and every attempt.

use axum::extract::State;
use bootstrap::{
    Json, Page, PageQuery, Path, Problem, Query, detached,
    http::{Cursor, Limit},
};
use messaging::outbox::{self, Entry};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::Shared;

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum OutboxState {
    Pending,
    Parked,
    Published,
}

impl OutboxState {
    const fn as_str(self) -> &'static str {
        match self {
            OutboxState::Pending => "PENDING",
            OutboxState::Parked => "PARKED",
            OutboxState::Published => "PUBLISHED",
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutboxQuery {
    /// Only entries in this state.
    #[param(inline)]
    state: Option<OutboxState>,
    /// Entries per page.
    #[serde(default)]
    #[param(value_type = Option<Limit>)]
    limit: Limit,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
}

/// An event in the outbox, or published from it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxEntry {
    event_id: Uuid,
    /// `PENDING`, `PARKED` or `PUBLISHED`.
    state: String,
    position: i64,
    event_type: String,
    aggregate_type: String,
    aggregate_id: String,
    aggregate_sequence: i64,
    subject: String,
    #[schema(required = true)]
    saga_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    attempts: i32,
    #[schema(required = true)]
    last_error: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    published_at: Option<OffsetDateTime>,
    #[schema(required = true)]
    stream: Option<String>,
    #[schema(required = true)]
    stream_sequence: Option<i64>,
    /// The relay that published it.
    #[schema(required = true)]
    relay: Option<String>,
    /// How often it was published again because the broker had lost it.
    republication: i32,
}

/// One failed attempt to publish.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxAttempt {
    attempt: i32,
    #[serde(with = "time::serde::rfc3339")]
    attempted_at: OffsetDateTime,
    relay: String,
    error: String,
}

/// An entry with its body and its whole history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxHistory {
    #[serde(flatten)]
    entry: OutboxEntry,
    #[schema(value_type = Object)]
    headers: serde_json::Value,
    #[schema(value_type = Object)]
    payload: serde_json::Value,
    history: Vec<OutboxAttempt>,
}

/// Events that wait, are parked or were published, newest first
#[utoipa::path(get, path = "/api/admin/outbox", tag = "administration", params(OutboxQuery),
    responses((status = 200, description = "A page of entries", body = Page<OutboxEntry>)))]
pub(crate) async fn list_outbox(
    State(desk): Shared,
    Query(query): Query<OutboxQuery>,
) -> Result<Json<Page<OutboxEntry>>, Problem> {
    let page = PageQuery::new(query.limit, query.cursor);
    let state = query.state.map(OutboxState::as_str);
    let rows = outbox::list(&desk.participant.pools.http, state, page.after()?, page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.event_id).map(body)))
}

/// One event with every attempt to publish it
#[utoipa::path(get, path = "/api/admin/outbox/{event_id}", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")),
    responses((status = 200, description = "The entry", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_outbox_entry(
    State(desk): Shared,
    Path(event_id): Path<Uuid>,
) -> Result<Json<OutboxHistory>, Problem> {
    let pool = &desk.participant.pools.http;
    let found = outbox::get(pool, event_id).await?;
    let mut entry = found.ok_or_else(|| Problem::not_found("This service's outbox has no such event."))?;
    let history = outbox::attempts(pool, event_id).await?;
    Ok(Json(OutboxHistory {
        headers: std::mem::take(&mut entry.headers),
        payload: std::mem::take(&mut entry.payload),
        entry: body(entry),
        history: history
            .into_iter()
            .map(|a| OutboxAttempt { attempt: a.attempt, attempted_at: a.attempted_at, relay: a.relay, error: a.error })
            .collect(),
    }))
}

/// Let a parked event be tried again
#[utoipa::path(post, path = "/api/admin/outbox/{event_id}/requeue", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")),
    responses((status = 200, description = "The entry, pending again", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn requeue_outbox_entry(
    State(desk): Shared,
    Path(event_id): Path<Uuid>,
) -> Result<Json<OutboxHistory>, Problem> {
    let pool = desk.participant.pools.http.clone();
    let requeued = detached(async move { outbox::requeue(&mut *pool.acquire().await?, event_id).await }).await?;
    let entry = get_outbox_entry(State(desk), Path(event_id)).await?;
    if requeued { Ok(entry) } else { Err(Problem::conflict("Only a parked event can be requeued.")) }
}

fn body(row: Entry) -> OutboxEntry {
    OutboxEntry {
        event_id: row.event_id,
        state: row.state,
        position: row.position,
        event_type: row.event_type,
        aggregate_type: row.aggregate_type,
        aggregate_id: row.aggregate_id,
        aggregate_sequence: row.aggregate_sequence,
        subject: row.subject,
        saga_id: row.saga_id,
        created_at: row.created_at,
        attempts: row.attempts,
        last_error: row.last_error,
        published_at: row.published_at,
        stream: row.stream,
        stream_sequence: row.stream_sequence,
        relay: row.relay,
        republication: row.republication,
    }
}
