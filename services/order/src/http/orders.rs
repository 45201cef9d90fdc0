//! Reading and cancelling orders.

use axum::{extract::State, http::StatusCode};
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, RequestContext, detached};
use contracts::{Money, Sku};
use messaging::{Context, retry_contended};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::problem;
use crate::{
    App,
    domain::{CancelRequest, OrderStatus, PricedLine},
    steps,
    store::{self, OrderRow},
};

/// An order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderBody {
    #[serde(flatten)]
    order: OrderRow,
    lines: Vec<OrderLineBody>,
}

impl OrderBody {
    pub(super) fn status(&self) -> OrderStatus {
        self.order.status
    }

    pub(super) fn why_cancelled(&self) -> String {
        let detail = self.order.cancellation.as_ref().map(|cancellation| cancellation.detail.as_str());
        format!("Order {} was cancelled: {}.", self.order.order_id, detail.unwrap_or("for an unknown reason"))
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderLineBody {
    #[schema(value_type = String)]
    sku: Sku,
    name: String,
    quantity: i64,
    unit_price: Money,
    line_total: Money,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OrderQuery {
    status: Option<OrderStatus>,
    customer_id: Option<String>,
}

/// One order
#[utoipa::path(get, path = "/api/orders/{id}", tag = "orders",
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 200, description = "The order", body = OrderBody),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_order(State(app): State<App>, Path(id): Path<Uuid>) -> JsonResult<OrderBody> {
    Ok(Json(read(&app, id).await?))
}

/// Orders, newest first
///
/// With a status, a page has the matches among at most 5,000 orders: it may be short, or empty, and still have a next one.
#[utoipa::path(get, path = "/api/orders", tag = "orders", params(OrderQuery, PageQuery),
    responses((status = 200, description = "A page of orders", body = Page<OrderBody>)))]
pub(super) async fn list_orders(
    State(app): State<App>,
    Filtered(query, page): Filtered<OrderQuery>,
) -> JsonResult<Page<OrderBody>> {
    let before = page.after()?.unwrap_or(Uuid::max());
    let distance = if query.status.is_some() { page.walk() } else { page.rows() };
    let mut conn = app.participant.pools.read.acquire().await?;
    let walked = store::walk_orders(&mut conn, query.customer_id.as_deref(), query.status, before, distance).await?;
    let Page { items: ids, next_cursor } = Page::from_walk(walked, &page, |id| *id);
    let rows = store::list_orders(&mut conn, &ids).await?;
    let mut lines = store::lines_of(&mut conn, &rows).await?;
    let items = rows.into_iter().map(|row| {
        let lines = lines.remove(&row.order_id).unwrap_or_default();
        body(row, lines)
    });
    Ok(Json(Page { items: items.collect(), next_cursor }))
}

/// The customer's reason
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelOrder {
    #[schema(min_length = 1, max_length = 500, example = "changed my mind")]
    reason: String,
}

/// Cancel an order: while it is pending, or after it was confirmed
///
/// Stock is released and the payment refunded; the saga is COMPENSATED when both are confirmed.
#[utoipa::path(post, path = "/api/orders/{id}/cancel", tag = "orders", request_body = CancelOrder,
    params(("id" = Uuid, Path, description = "The order's id")),
    responses((status = 202, description = "Cancelled; the compensation has started", body = OrderBody),
        (status = 200, description = "It was cancelled already; unchanged", body = OrderBody),
        (status = 404, description = "No such order", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Too old, or past the last step that can be undone", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn cancel_order(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    context: RequestContext,
    Json(request): Json<CancelOrder>,
) -> Result<(StatusCode, Json<OrderBody>), Problem> {
    participant::expect_reason(&request.reason)?;
    let context = Context::of_request(context.correlation_id, &context.traceparent);
    let shared = app.clone();
    let write = async move {
        let cancel = || steps::cancel_order_on_request(&shared, &context, id, &request.reason);
        retry_contended(cancel).await.map_err(|e| problem(&e))
    };
    let status = match detached(write).await? {
        None => return Err(unknown(id)),
        Some(CancelRequest::TooOld) => {
            return Err(Problem::conflict("The order is too old: its saga is purged, so it cannot be compensated."));
        }
        Some(CancelRequest::TooLate) => {
            return Err(Problem::conflict("The order is too far on its way: its last step cannot be undone."));
        }
        Some(CancelRequest::Apply) => StatusCode::ACCEPTED,
        Some(CancelRequest::Unchanged) => StatusCode::OK,
    };
    Ok((status, Json(read(&app, id).await?)))
}

/// The order as it is now.
pub(super) async fn read(app: &App, order_id: Uuid) -> Result<OrderBody, Problem> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::get_order(&mut conn, order_id).await?.ok_or_else(|| unknown(order_id))?;
    let lines = store::lines_of(&mut conn, std::slice::from_ref(&row)).await?;
    Ok(body(row, lines.into_values().flatten()))
}

fn unknown(order_id: Uuid) -> Problem {
    Problem::not_found(format!("There is no order {order_id}."))
}

/// The JSON of an order that was read, or just accepted.
pub(super) fn body(order: OrderRow, lines: impl IntoIterator<Item = PricedLine>) -> OrderBody {
    let line = |l: PricedLine| OrderLineBody {
        quantity: l.quantity.units(),
        // It did not overflow when the order was accepted.
        line_total: Money { amount: l.unit_price.amount.saturating_mul(l.quantity.units()), ..l.unit_price },
        sku: l.sku,
        name: l.name,
        unit_price: l.unit_price,
    };
    OrderBody { order, lines: lines.into_iter().map(line).collect() }
}
