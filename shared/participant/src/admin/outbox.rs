//! The outbox: what waits, what is parked, what was published or given up, every attempt, and what operators did.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{
    Json, Page, PageQuery, Path, Problem, Query, detached,
    http::{Cursor, Limit},
};
use messaging::outbox::{self, Entry, Parked};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Shared, actor, dead_letters::Why};

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum OutboxState {
    Pending,
    Parked,
    Published,
    Discarded,
}

impl OutboxState {
    const fn as_str(self) -> &'static str {
        match self {
            OutboxState::Pending => "PENDING",
            OutboxState::Parked => "PARKED",
            OutboxState::Published => "PUBLISHED",
            OutboxState::Discarded => "DISCARDED",
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

/// An event in the outbox, or published or discarded from it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxEntry {
    event_id: Uuid,
    /// `PENDING`, `PARKED`, `PUBLISHED` or `DISCARDED`.
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

/// One thing that an operator did to an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxAction {
    #[serde(with = "time::serde::rfc3339")]
    acted_at: OffsetDateTime,
    actor: String,
    /// `REQUEUE` or `DISCARD`.
    action: String,
    #[schema(required = true)]
    reason: Option<String>,
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
    actions: Vec<OutboxAction>,
}

/// Events that wait, are parked, were published or discarded, newest first
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
    let actions = outbox::actions(pool, event_id).await?;
    Ok(Json(OutboxHistory {
        headers: std::mem::take(&mut entry.headers),
        payload: std::mem::take(&mut entry.payload),
        entry: body(entry),
        history: history
            .into_iter()
            .map(|a| OutboxAttempt { attempt: a.attempt, attempted_at: a.attempted_at, relay: a.relay, error: a.error })
            .collect(),
        actions: actions
            .into_iter()
            .map(|a| OutboxAction { acted_at: a.acted_at, actor: a.actor, action: a.action, reason: a.reason })
            .collect(),
    }))
}

/// Let a parked event be tried again
#[utoipa::path(post, path = "/api/admin/outbox/{event_id}/requeue", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = Option<Why>,
    responses((status = 200, description = "The entry, pending again", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn requeue_outbox_entry(
    State(desk): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> Result<Json<OutboxHistory>, Problem> {
    let (pool, actor) = (desk.participant.pools.http.clone(), actor(&headers));
    let reason = why.and_then(|Json(why)| why.reason);
    let requeue =
        async move { outbox::requeue(&mut *pool.acquire().await?, &[event_id], &actor, reason.as_deref()).await };
    let requeued = detached(requeue).await?;
    let entry = get_outbox_entry(State(desk), Path(event_id)).await?;
    if requeued.is_empty() { Err(Problem::conflict("Only a parked event can be requeued.")) } else { Ok(entry) }
}

/// Why an event is given up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardOutboxEntry {
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// Give a parked event up: it is never published, and the later events of its aggregate are
#[utoipa::path(delete, path = "/api/admin/outbox/{event_id}", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = DiscardOutboxEntry,
    responses((status = 200, description = "The entry, discarded", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn discard_outbox_entry(
    State(desk): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    Json(why): Json<DiscardOutboxEntry>,
) -> Result<Json<OutboxHistory>, Problem> {
    expect_reason(&why.reason)?;
    let (pool, actor) = (desk.participant.pools.http.clone(), actor(&headers));
    let discard = async move { outbox::discard(&mut *pool.acquire().await?, event_id, &actor, &why.reason).await };
    let discarded = detached(discard).await?;
    let entry = get_outbox_entry(State(desk), Path(event_id)).await?;
    if discarded { Ok(entry) } else { Err(Problem::conflict("Only a parked event can be discarded.")) }
}

/// Which parked events: those of which all of this is true. `{}` means all.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParkedFilter {
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    event_type: Option<String>,
    aggregate_id: Option<String>,
    /// Only older ones.
    #[serde(default, with = "time::serde::rfc3339::option")]
    created_before: Option<OffsetDateTime>,
}

/// Which parked events to try again, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequeueRequest {
    #[serde(deserialize_with = "bootstrap::http::object")]
    filter: ParkedFilter,
    /// How many at most, the oldest first; 100 by default.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only say which ones it would be; nothing is changed. So it is, unless it is false.
    #[serde(default = "yes")]
    dry_run: bool,
    /// Each event's history keeps it, with the name in `x-actor`.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

fn yes() -> bool {
    true
}

/// What became of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequeueBody {
    dry_run: bool,
    /// How many parked events the filter is true of.
    matched: i64,
    /// How many of these are pending again.
    requeued: usize,
    /// The oldest of them, as many as the limit allows.
    event_ids: Vec<Uuid>,
}

/// Let many parked events be tried again, or say which
#[utoipa::path(post, path = "/api/admin/outbox/requeue", tag = "administration", request_body = RequeueRequest,
    responses((status = 200, description = "What was done, or with `dry_run` what would be", body = RequeueBody)))]
pub(crate) async fn requeue_outbox(
    State(desk): Shared,
    headers: HeaderMap,
    Json(wanted): Json<RequeueRequest>,
) -> Result<Json<RequeueBody>, Problem> {
    let RequeueRequest { filter, limit, dry_run, reason } = wanted;
    let limit = limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(Problem::invalid("/limit", "A number of events, 1 to 1000."));
    }
    expect_reason(&reason)?;
    let ParkedFilter { event_type, aggregate_id, created_before } = filter;
    let which = Parked { event_type, aggregate_id, created_before };
    let (pool, actor) = (desk.participant.pools.http.clone(), actor(&headers));
    let (matched, event_ids) = outbox::parked(&pool, &which, limit).await?;
    if dry_run {
        return Ok(Json(RequeueBody { dry_run, matched, requeued: 0, event_ids }));
    }
    let ids = event_ids.clone();
    let requeue = async move { outbox::requeue(&mut *pool.acquire().await?, &ids, &actor, Some(&reason)).await };
    let requeued = detached(requeue).await?.len();
    Ok(Json(RequeueBody { dry_run, matched, requeued, event_ids }))
}

fn expect_reason(reason: &str) -> Result<(), Problem> {
    if (1..=500).contains(&reason.chars().count()) {
        return Ok(());
    }
    Err(Problem::invalid("/reason", "A reason has 1 to 500 characters."))
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
