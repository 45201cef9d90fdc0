//! The reservation of an order.

use axum::extract::State;
use bootstrap::{Json, JsonResult, Path, Problem};
use contracts::OrderId;

use crate::{
    App,
    store::{self, ReservationRow},
};

/// The reservation of an order, or its tombstone
#[utoipa::path(get, path = "/api/reservations/{order_id}", tag = "reservations",
    params(("order_id" = OrderId, Path, description = "The order's id")),
    responses((status = 200, description = "The reservation", body = ReservationRow),
        (status = 404, description = "Inventory has no event of this order", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_reservation(
    State(app): State<App>,
    Path(order_id): Path<OrderId>,
) -> JsonResult<ReservationRow> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let found = store::find_reservation(&mut conn, order_id.0).await?;
    let unknown = || Problem::not_found(format!("There is no reservation for the order {order_id}."));
    found.map(Json).ok_or_else(unknown)
}
