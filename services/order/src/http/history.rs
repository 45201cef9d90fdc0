//! The history of an order: the events of its saga, from all services, with their bodies as long as those are kept.

use axum::extract::State;
use bootstrap::{Json, JsonResult, Page, Path, Problem};
use messaging::outbox::PastEvent;
use saga_store::query::{self, StepView};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{App, store};

/// An event of an order's saga.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderEvent {
    event_id: Uuid,
    /// With its version: `OrderCreated.v1`.
    event_type: String,
    /// The service that published it.
    service: String,
    /// The step that emitted it.
    step: String,
    #[serde(with = "time::serde::rfc3339")]
    occurred_at: OffsetDateTime,
    /// Null while it waits for the relay, or when it is not kept any more.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    published_at: Option<OffsetDateTime>,
    /// Grows with each event of its order, reservation or payment; null when it is not kept any more.
    #[schema(required = true)]
    aggregate_sequence: Option<i64>,
    /// Without the token of the card and the address; null when it is not kept any more.
    #[schema(value_type = Option<Object>, required = true)]
    payload: Option<serde_json::Value>,
}

/// The events of an order, from the first one on
///
/// Those of all services that took part, in the order of the saga's journal. Kept as long as the saga; the bodies for
/// `EVENT_RETENTION` of the service that published them.
#[utoipa::path(get, path = "/api/orders/{id}/events", tag = "orders",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "All of its events", body = Page<OrderEvent>),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn order_events(State(app): State<App>, Path(id): Path<Uuid>) -> JsonResult<Page<OrderEvent>> {
    let pool = &app.participant.pools.http;
    let order = store::get_order(&mut *pool.acquire().await?, id).await?;
    let order = order.ok_or_else(|| Problem::not_found(format!("There is no order {id}.")))?;
    let journal = query::journal(pool, order.saga_id.0).await?;
    let ids: Vec<Uuid> = journal.iter().filter_map(|entry| entry.event_id).collect();
    let kept = store::events(&mut *pool.acquire().await?, &ids).await?;
    let items = journal.into_iter().filter_map(|entry| event(entry, &kept)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

fn event(entry: StepView, kept: &[PastEvent]) -> Option<OrderEvent> {
    let event_id = entry.event_id?;
    let kept = kept.iter().find(|event| event.event_id == event_id);
    Some(OrderEvent {
        event_id,
        event_type: entry.event_type,
        service: entry.service,
        step: entry.step,
        occurred_at: entry.occurred_at,
        published_at: kept.and_then(|event| event.published_at),
        aggregate_sequence: kept.map(|event| event.aggregate_sequence),
        payload: kept.map(|event| event.payload.clone()),
    })
}
