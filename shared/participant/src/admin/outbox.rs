//! The outbox: pending, parked, published and discarded events, each with its history; an operator requeues or discards a parked one.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, detached};
use messaging::outbox::{self, Change, Entry};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Shared, actor, expect_reason};

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
}

/// An entry with its body and its history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutboxHistory {
    #[serde(flatten)]
    entry: Entry,
    #[schema(value_type = Object)]
    headers: serde_json::Value,
    #[schema(value_type = Object)]
    payload: serde_json::Value,
    history: Vec<Change>,
}

/// Pending, parked, published and discarded events, newest first
#[utoipa::path(get, path = "/api/admin/outbox", tag = "administration", params(OutboxQuery, PageQuery),
    responses((status = 200, description = "A page of entries", body = Page<Entry>)))]
pub(crate) async fn list_outbox(
    State(admin): Shared,
    Filtered(query, page): Filtered<OutboxQuery>,
) -> JsonResult<Page<Entry>> {
    let state = query.state.map(OutboxState::as_str);
    let rows = outbox::list(&admin.participant.pools.read, state, page.after()?, page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.event_id)))
}

/// One event with its history: written, refused and parked, requeued, published or discarded, when, by whom, and why
#[utoipa::path(get, path = "/api/admin/outbox/{event_id}", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")),
    responses((status = 200, description = "The entry", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_outbox_entry(State(admin): Shared, Path(event_id): Path<Uuid>) -> JsonResult<OutboxHistory> {
    let pool = &admin.participant.pools.http;
    let found = outbox::get(pool, event_id).await?;
    let mut entry = found.ok_or_else(|| Problem::not_found("This service's outbox has no such event."))?;
    Ok(Json(OutboxHistory {
        headers: std::mem::take(&mut entry.headers),
        payload: std::mem::take(&mut entry.payload),
        history: outbox::history(pool, &entry).await?,
        entry,
    }))
}

/// Why an event is requeued or discarded.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutboxAction {
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// Retry a parked event
#[utoipa::path(post, path = "/api/admin/outbox/{event_id}/requeue", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = OutboxAction,
    responses((status = 200, description = "The entry, pending again", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn requeue_outbox_entry(
    State(admin): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    Json(why): Json<OutboxAction>,
) -> JsonResult<OutboxHistory> {
    expect_reason(&why.reason)?;
    let (pool, actor) = (admin.participant.pools.http.clone(), actor(&headers));
    let requeue = async move { outbox::requeue(&mut *pool.acquire().await?, &[event_id], &actor, &why.reason).await };
    let requeued = detached(requeue).await?;
    let entry = get_outbox_entry(State(admin), Path(event_id)).await?;
    if requeued.is_empty() { Err(Problem::conflict("Only a parked event can be requeued.")) } else { Ok(entry) }
}

/// Discard a parked event: it is never published, and the later events of its aggregate are
#[utoipa::path(delete, path = "/api/admin/outbox/{event_id}", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = OutboxAction,
    responses((status = 200, description = "The entry, discarded", body = OutboxHistory),
        (status = 404, description = "No such event", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn discard_outbox_entry(
    State(admin): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    Json(why): Json<OutboxAction>,
) -> JsonResult<OutboxHistory> {
    expect_reason(&why.reason)?;
    let (pool, actor) = (admin.participant.pools.http.clone(), actor(&headers));
    let discard = async move { outbox::discard(&mut *pool.acquire().await?, &[event_id], &actor, &why.reason).await };
    let discarded = detached(discard).await?;
    let entry = get_outbox_entry(State(admin), Path(event_id)).await?;
    if discarded.is_empty() { Err(Problem::conflict("Only a parked event can be discarded.")) } else { Ok(entry) }
}
