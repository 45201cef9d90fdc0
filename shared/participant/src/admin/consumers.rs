//! The consumers of this service, and an operator's hold on them.

use axum::extract::State;
use bootstrap::{Json, Path, Problem, detached};
use messaging::{consumer, consumer::ConsumerState};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Desk, Shared};

/// A step's consumer on one publisher's stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsumerBody {
    step: &'static str,
    consumer: String,
    event_type: String,
    stream: String,
    /// Published and not delivered yet; null while the broker is away.
    #[schema(required = true)]
    lag: Option<u64>,
    /// Delivered and not acknowledged yet; null while the broker is away.
    #[schema(required = true)]
    in_flight: Option<usize>,
    #[schema(required = true)]
    redelivered: Option<usize>,
    /// Whether a replica asks the broker for more just now; null while the broker is away.
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

/// Every consumer with its lag, and why it is paused
#[utoipa::path(get, path = "/api/admin/consumers", tag = "administration",
    responses((status = 200, description = "The consumers", body = ConsumerList)))]
pub(crate) async fn list_consumers(State(desk): Shared) -> Result<Json<ConsumerList>, Problem> {
    let mut items = Vec::new();
    for subscription in &desk.subscriptions {
        for publisher in subscription.event.publishers {
            let name = subscription.step.consumer();
            let participant = &desk.participant;
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
    Ok(Json(ConsumerList { items }))
}

fn paused_because(state: &ConsumerState) -> Option<String> {
    match (&state.paused_since, &state.broker) {
        (Some(_), _) => Some("paused by an operator".to_owned()),
        (None, Err(reason)) => Some(reason.clone()),
        (None, Ok(_)) => None,
    }
}

/// Stop consuming for this step, in every replica
#[utoipa::path(post, path = "/api/admin/consumers/{step}/pause", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The consumers", body = ConsumerList),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn pause_consumer(state: Shared, step: Path<String>) -> Result<Json<ConsumerList>, Problem> {
    set_paused(state, step, true).await
}

/// Consume again
#[utoipa::path(post, path = "/api/admin/consumers/{step}/resume", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The consumers", body = ConsumerList),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn resume_consumer(state: Shared, step: Path<String>) -> Result<Json<ConsumerList>, Problem> {
    set_paused(state, step, false).await
}

async fn set_paused(
    State(desk): Shared,
    Path(step): Path<String>,
    paused: bool,
) -> Result<Json<ConsumerList>, Problem> {
    let consumer = consumer_of(&desk, &step)?;
    let pool = desk.participant.pools.http.clone();
    detached(async move { consumer::pause(&mut *pool.acquire().await?, &consumer, paused).await }).await?;
    tracing::warn!(step, paused, "an operator has set a consumer");
    list_consumers(State(desk)).await
}

fn consumer_of(desk: &Desk, step: &str) -> Result<String, Problem> {
    let found = desk.subscriptions.iter().find(|s| s.step.name == step);
    found.map(|s| s.step.consumer()).ok_or_else(|| Problem::not_found(format!("This service has no step {step:?}.")))
}
