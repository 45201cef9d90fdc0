//! What inventory holds for an order, or why it holds nothing.

use axum::extract::State;
use bootstrap::{Json, Path, Problem};
use contracts::{OrderId, SagaId};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{
    App,
    domain::ReservationStatus,
    store::{self, ReservationRow},
};

/// What inventory answered to an order. A tombstone and a refusal have no lines.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReservationBody {
    order_id: OrderId,
    saga_id: SagaId,
    status: ReservationStatus,
    /// Why the order was refused; null when it was not.
    #[schema(required = true)]
    reason: Option<String>,
    lines: Vec<ReservationLineBody>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// A quantity of one SKU; lines of an order for the same SKU are one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReservationLineBody {
    #[schema(example = "LAPTOP-15")]
    sku: String,
    #[schema(minimum = 1)]
    quantity: i64,
    /// `RESERVED` or `RELEASED`.
    #[schema(example = "RESERVED")]
    status: String,
}

/// What is reserved for an order, or its tombstone
#[utoipa::path(get, path = "/api/reservations/{order_id}", tag = "reservations",
    params(("order_id" = OrderId, Path, description = "The order's id")),
    responses((status = 200, description = "The reservation", body = ReservationBody),
        (status = 404, description = "Inventory has not heard of this order", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_reservation(
    State(app): State<App>,
    Path(order_id): Path<OrderId>,
) -> Result<Json<ReservationBody>, Problem> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let found = store::find_reservation(&mut conn, order_id.0).await?;
    let unknown = || Problem::not_found(format!("There is no reservation for the order {order_id}."));
    Ok(Json(body(found.ok_or_else(unknown)?)))
}

fn body(row: ReservationRow) -> ReservationBody {
    let lines = row.lines.into_iter();
    ReservationBody {
        order_id: OrderId(row.order_id),
        saga_id: SagaId(row.saga_id),
        status: row.status,
        reason: row.reason,
        lines: lines.map(|l| ReservationLineBody { sku: l.sku, quantity: l.quantity, status: l.status }).collect(),
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}
