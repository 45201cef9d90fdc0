//! The consumers of this service; an operator can pause them.

use std::{collections::BTreeSet, time::Duration};

use axum::{extract::State, http::StatusCode};
use bootstrap::{Json, JsonResult, Path, Problem, detached};
use messaging::{Subscription, consumer, consumer::ConsumerState};
use serde::Serialize;
use time::OffsetDateTime;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{AdminState, Shared};
use crate::replicas::{Answers, Question};

/// How long a replica waits for its consumers to stop; shorter than the time that others wait for its answer.
const CLOSE_LIMIT: Duration = Duration::from_millis(800);

/// A step's consumer on one publisher's stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsumerBody {
    step: &'static str,
    consumer: String,
    event_type: String,
    stream: String,
    /// Published and not delivered yet; null while the broker cannot be reached.
    #[schema(required = true)]
    lag: Option<u64>,
    /// Delivered and not acknowledged yet; null while the broker cannot be reached.
    #[schema(required = true)]
    in_flight: Option<usize>,
    #[schema(required = true)]
    redelivered: Option<usize>,
    /// Whether a replica has an open pull request at the broker; null while the broker cannot be reached.
    #[schema(required = true)]
    pulling: Option<bool>,
    /// Why the consumer does not consume; null when it does.
    #[schema(required = true)]
    paused: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    paused_since: Option<OffsetDateTime>,
}

/// The consumers
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsumerList {
    items: Vec<ConsumerBody>,
}

/// The consumers, and the replicas that may still take events
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PausedConsumers {
    items: Vec<ConsumerBody>,
    /// Replicas that have not confirmed that they take no more events of this step: they are not connected to the broker, or
    /// have died within the last seconds. A living one stops within a second.
    missing: BTreeSet<String>,
}

/// Every consumer with its lag, and why it is paused
#[utoipa::path(get, path = "/api/admin/consumers", tag = "administration",
    responses((status = 200, description = "The consumers", body = ConsumerList)))]
pub(crate) async fn list_consumers(State(admin): Shared) -> JsonResult<ConsumerList> {
    Ok(Json(ConsumerList { items: consumers_of(&admin).await? }))
}

async fn consumers_of(admin: &AdminState) -> Result<Vec<ConsumerBody>, Problem> {
    let mut items = Vec::new();
    for subscription in &admin.subscriptions {
        for publisher in subscription.event.publishers {
            let name = subscription.step.consumer();
            let participant = &admin.participant;
            let state = consumer::state(&participant.pools.http, &participant.bus, &name, *publisher).await?;
            items.push(ConsumerBody {
                step: subscription.step.name,
                consumer: name,
                event_type: subscription.event.wire_name(),
                stream: publisher.stream(),
                lag: state.broker.as_ref().ok().map(|b| b.lag),
                in_flight: state.broker.as_ref().ok().map(|b| b.in_flight),
                redelivered: state.broker.as_ref().ok().map(|b| b.redelivered),
                pulling: state.broker.as_ref().ok().map(|b| b.pulls > 0),
                paused: paused_because(&state),
                paused_since: state.paused_since,
            });
        }
    }
    Ok(items)
}

fn paused_because(state: &ConsumerState) -> Option<String> {
    match (&state.paused_since, &state.broker) {
        (Some(_), _) => Some("paused by an operator".to_owned()),
        (None, Err(reason)) => Some(reason.clone()),
        (None, Ok(_)) => None,
    }
}

/// Stop consuming for this step, in every replica
///
/// Events in process are finished. After a 200 no other event is taken.
#[utoipa::path(post, path = "/api/admin/consumers/{step}/pause", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The consumers, paused", body = PausedConsumers),
        (status = 202, description = "Pausing: the replicas in `missing` have not stopped yet", body = PausedConsumers),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn pause_consumer(
    State(admin): Shared,
    Path(step): Path<String>,
) -> Result<(StatusCode, Json<PausedConsumers>), Problem> {
    set_paused(&admin, &step, true).await?;
    let closed = close_intake(&admin.subscriptions, &step).await;
    let Answers { given, mut missing } = admin.participant.replicas.ask(Question::CloseIntake { step }, closed).await;
    missing.extend(given.into_iter().filter(|(_, closed)| !closed).map(|(replica, _)| replica));
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(PausedConsumers { items: consumers_of(&admin).await?, missing })))
}

/// Whether this replica takes no more events of a paused step.
pub(super) async fn close_intake(subscriptions: &[Subscription], step: &str) -> bool {
    let Some(subscription) = subscriptions.iter().find(|s| s.step.name == step) else { return true };
    timeout(CLOSE_LIMIT, subscription.intake.closed()).await.is_ok()
}

/// Consume again
#[utoipa::path(post, path = "/api/admin/consumers/{step}/resume", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The consumers", body = ConsumerList),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn resume_consumer(State(admin): Shared, Path(step): Path<String>) -> JsonResult<ConsumerList> {
    set_paused(&admin, &step, false).await?;
    list_consumers(State(admin)).await
}

async fn set_paused(admin: &AdminState, step: &str, paused: bool) -> Result<(), Problem> {
    let consumer = consumer_of(admin, step)?;
    let pool = admin.participant.pools.http.clone();
    detached(async move { consumer::pause(&mut *pool.acquire().await?, &consumer, paused).await }).await?;
    tracing::warn!(step, paused, "a consumer was paused or resumed by an operator");
    Ok(())
}

fn consumer_of(admin: &AdminState, step: &str) -> Result<String, Problem> {
    let found = admin.subscriptions.iter().find(|s| s.step.name == step);
    found.map(|s| s.step.consumer()).ok_or_else(|| Problem::not_found(format!("This service has no step {step:?}.")))
}
