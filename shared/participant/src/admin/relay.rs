//! The relay's leader and progress; an operator can pause the relay.

use axum::extract::State;
use bootstrap::{Json, JsonResult, detached};
use messaging::relay::{self, LeaseState};

use super::Shared;

/// The relay's holder, epoch, lag and last receipt
#[utoipa::path(get, path = "/api/admin/relay", tag = "administration",
    responses((status = 200, description = "The relay", body = LeaseState)))]
pub(crate) async fn get_relay(State(admin): Shared) -> JsonResult<LeaseState> {
    Ok(Json(relay::state(&admin.participant.pools.http).await?))
}

/// Stop publishing; events stay pending in the outbox
#[utoipa::path(post, path = "/api/admin/relay/pause", tag = "administration",
    responses((status = 200, description = "The relay, paused", body = LeaseState)))]
pub(crate) async fn pause_relay(state: Shared) -> JsonResult<LeaseState> {
    set_paused(state, true).await
}

/// Publish again
#[utoipa::path(post, path = "/api/admin/relay/resume", tag = "administration",
    responses((status = 200, description = "The relay, running", body = LeaseState)))]
pub(crate) async fn resume_relay(state: Shared) -> JsonResult<LeaseState> {
    set_paused(state, false).await
}

async fn set_paused(State(admin): Shared, paused: bool) -> JsonResult<LeaseState> {
    let pool = admin.participant.pools.http.clone();
    detached(async move { relay::pause(&mut *pool.acquire().await?, paused).await }).await?;
    tracing::warn!(paused, "the relay was paused or resumed by an operator");
    get_relay(State(admin)).await
}
