//! The webhook: how far it is, and the events that it holds back; an operator requeues or discards a parked one. The routes exist only
//! where a webhook is set.

use ::webhook::{HeldEvent, Position, Recall};
use axum::{extract::State, http::HeaderMap};
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, detached};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{Shared, actor, expect_reason};

pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<super::AdminState>> {
    OpenApiRouter::new()
        .routes(routes!(get_webhook))
        .routes(routes!(list_webhook_events))
        .routes(routes!(requeue_webhook_event))
        .routes(routes!(discard_webhook_event))
        .routes(routes!(skip_webhook))
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum HeldState {
    Pending,
    Parked,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HeldQuery {
    /// Only events in this state.
    #[param(inline)]
    state: Option<HeldState>,
}

/// The reason for an action on the webhook.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookReason {
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// The webhook's replica, position and lag
#[utoipa::path(get, path = "/api/admin/webhook", tag = "administration",
    responses((status = 200, description = "The webhook", body = Position)))]
pub(crate) async fn get_webhook(State(admin): Shared) -> JsonResult<Position> {
    Ok(Json(::webhook::state(&admin.participant.pools.http).await?))
}

/// Events that are held back from the webhook, oldest first
#[utoipa::path(get, path = "/api/admin/webhook/events", tag = "administration", params(HeldQuery, PageQuery),
    responses((status = 200, description = "A page of events", body = Page<HeldEvent>)))]
pub(crate) async fn list_webhook_events(
    State(admin): Shared,
    Filtered(query, page): Filtered<HeldQuery>,
) -> JsonResult<Page<HeldEvent>> {
    let state = query.state.map(|state| match state {
        HeldState::Pending => "PENDING",
        HeldState::Parked => "PARKED",
    });
    let after = page.after()?.unwrap_or(0);
    let rows = ::webhook::list(&admin.participant.pools.read, state, after, page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.ordinal)))
}

/// Post a parked event again
#[utoipa::path(post, path = "/api/admin/webhook/events/{event_id}/requeue", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = WebhookReason,
    responses((status = 200, description = "The webhook", body = Position),
        (status = 404, description = "No such event is held back", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn requeue_webhook_event(
    State(admin): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    Json(why): Json<WebhookReason>,
) -> JsonResult<Position> {
    expect_reason(&why.reason)?;
    let pool = admin.participant.pools.http.clone();
    let done = detached(async move { ::webhook::requeue(&mut *pool.acquire().await?, event_id).await }).await?;
    tracing::warn!(%event_id, actor = actor(&headers), reason = why.reason, ?done, "a parked event of the webhook is requeued");
    concluded(State(admin), done).await
}

/// Discard a parked event: it is never posted, and the later events of its aggregate are
#[utoipa::path(delete, path = "/api/admin/webhook/events/{event_id}", tag = "administration",
    params(("event_id" = Uuid, Path, description = "The event's id")), request_body = WebhookReason,
    responses((status = 200, description = "The webhook", body = Position),
        (status = 404, description = "No such event is held back", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not parked", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn discard_webhook_event(
    State(admin): Shared,
    Path(event_id): Path<Uuid>,
    headers: HeaderMap,
    Json(why): Json<WebhookReason>,
) -> JsonResult<Position> {
    expect_reason(&why.reason)?;
    let pool = admin.participant.pools.http.clone();
    let done = detached(async move { ::webhook::discard(&mut *pool.acquire().await?, event_id).await }).await?;
    tracing::warn!(%event_id, actor = actor(&headers), reason = why.reason, ?done, "a parked event of the webhook is discarded");
    concluded(State(admin), done).await
}

/// Move the webhook to the end: events that were published until now and not posted are never posted, except those held back
#[utoipa::path(post, path = "/api/admin/webhook/skip", tag = "administration", request_body = WebhookReason,
    responses((status = 200, description = "The webhook", body = Position)))]
pub(crate) async fn skip_webhook(
    State(admin): Shared,
    headers: HeaderMap,
    Json(why): Json<WebhookReason>,
) -> JsonResult<Position> {
    expect_reason(&why.reason)?;
    let pool = admin.participant.pools.http.clone();
    detached(async move { ::webhook::skip(&mut *pool.acquire().await?).await }).await?;
    tracing::warn!(actor = actor(&headers), reason = why.reason, "the webhook is moved to the end");
    get_webhook(State(admin)).await
}

async fn concluded(admin: Shared, done: Recall) -> JsonResult<Position> {
    match done {
        Recall::Done => get_webhook(admin).await,
        Recall::NotParked => Err(Problem::conflict("Only a parked event can be requeued or discarded.")),
        Recall::Unknown => Err(Problem::not_found("The webhook holds no such event back.")),
    }
}
