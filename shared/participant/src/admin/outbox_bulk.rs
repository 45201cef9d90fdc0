//! Requeue and discard many parked events.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Json, JsonResult, detached};
use messaging::{
    frozen_set::Of,
    outbox::{self, Parked},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Shared, actor,
    bulk::{DiscardBody, FrozenBulk, Selected},
};

/// The result of a bulk requeue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequeueBody {
    #[serde(flatten)]
    selected: Selected,
    /// The number of events that are pending again; the others were not parked any more.
    requeued: usize,
}

/// Retry many parked events, or report and freeze which
#[utoipa::path(post, path = "/api/admin/outbox/requeue", tag = "administration", request_body = FrozenBulk<Parked>,
    responses((status = 200, description = "The result; with `dry_run` the events that match, and their frozen set", body = RequeueBody)))]
pub(crate) async fn requeue_outbox(
    State(admin): Shared,
    headers: HeaderMap,
    Json(wanted): Json<FrozenBulk<Parked>>,
) -> JsonResult<RequeueBody> {
    let (pool, actor) = (admin.participant.pools.http.clone(), actor(&headers));
    let parked = async |filter: &Parked, limit| outbox::parked(&pool, filter, limit).await;
    let selected = wanted.selected(&pool, Of::Outbox, &actor, parked).await?;
    if wanted.dry_run {
        return Ok(Json(RequeueBody { selected, requeued: 0 }));
    }
    let (ids, reason) = (selected.ids.clone(), wanted.reason);
    let requeue = async move { outbox::requeue(&mut *pool.acquire().await?, &ids, &actor, &reason).await };
    Ok(Json(RequeueBody { selected, requeued: detached(requeue).await?.len() }))
}

/// Discard the parked events of a dry run: they are never published, and the later events of their aggregates are
#[utoipa::path(post, path = "/api/admin/outbox/discard", tag = "administration", request_body = FrozenBulk<Parked>,
    responses((status = 200, description = "The result; with `dry_run` the events that match, and their frozen set", body = DiscardBody)))]
pub(crate) async fn discard_outbox(
    State(admin): Shared,
    headers: HeaderMap,
    Json(wanted): Json<FrozenBulk<Parked>>,
) -> JsonResult<DiscardBody> {
    wanted.expect_frozen()?;
    let (pool, actor) = (admin.participant.pools.http.clone(), actor(&headers));
    let parked = async |filter: &Parked, limit| outbox::parked(&pool, filter, limit).await;
    let selected = wanted.selected(&pool, Of::Outbox, &actor, parked).await?;
    if wanted.dry_run {
        return Ok(Json(DiscardBody { selected, discarded: 0 }));
    }
    let (ids, reason) = (selected.ids.clone(), wanted.reason);
    let discard = async move { outbox::discard(&mut *pool.acquire().await?, &ids, &actor, &reason).await };
    Ok(Json(DiscardBody { selected, discarded: detached(discard).await?.len() }))
}
