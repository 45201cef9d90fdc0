//! Who relays, how far it is, and an operator's hold on it.

use axum::extract::State;
use bootstrap::{Json, Problem, detached};
use messaging::relay;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Shared;

/// The relay of this service, whichever replica's it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RelayBody {
    /// The replica whose relay is the active one.
    holder: String,
    /// Grows with every takeover.
    epoch: i64,
    /// Whether the holder's lease is valid just now.
    active: bool,
    paused: bool,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    taken_at: Option<OffsetDateTime>,
    /// Events that wait to be published.
    lag: i64,
    /// Events that were refused too often and wait for an operator.
    parked: i64,
    /// Age of the oldest event that waits, in seconds.
    #[schema(required = true)]
    oldest_pending_seconds: Option<f64>,
    /// The stream's sequence at the last receipt.
    last_sequence: i64,
    #[schema(required = true)]
    last_event_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    last_receipt_at: Option<OffsetDateTime>,
    /// Events published once more because the broker had lost them.
    republished: i64,
}

/// The relay's holder, epoch, lag and last receipt
#[utoipa::path(get, path = "/api/admin/relay", tag = "administration",
    responses((status = 200, description = "The relay", body = RelayBody)))]
pub(crate) async fn get_relay(State(desk): Shared) -> Result<Json<RelayBody>, Problem> {
    let s = relay::state(&desk.participant.pools.http).await?;
    Ok(Json(RelayBody {
        holder: s.holder,
        epoch: s.epoch,
        active: s.active,
        paused: s.paused,
        taken_at: s.taken_at,
        lag: s.pending,
        parked: s.parked,
        oldest_pending_seconds: s.oldest_pending_seconds,
        last_sequence: s.last_sequence,
        last_event_id: s.last_event_id,
        last_receipt_at: s.last_receipt_at,
        republished: s.republished,
    }))
}

/// Stop publishing; events wait in the outbox
#[utoipa::path(post, path = "/api/admin/relay/pause", tag = "administration",
    responses((status = 200, description = "The relay, paused", body = RelayBody)))]
pub(crate) async fn pause_relay(state: Shared) -> Result<Json<RelayBody>, Problem> {
    set_paused(state, true).await
}

/// Publish again
#[utoipa::path(post, path = "/api/admin/relay/resume", tag = "administration",
    responses((status = 200, description = "The relay, at work", body = RelayBody)))]
pub(crate) async fn resume_relay(state: Shared) -> Result<Json<RelayBody>, Problem> {
    set_paused(state, false).await
}

async fn set_paused(State(desk): Shared, paused: bool) -> Result<Json<RelayBody>, Problem> {
    let pool = desk.participant.pools.http.clone();
    detached(async move { relay::pause(&mut *pool.acquire().await?, paused).await }).await?;
    tracing::warn!(paused, "an operator has set the relay");
    get_relay(State(desk)).await
}
