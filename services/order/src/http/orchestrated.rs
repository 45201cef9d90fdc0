//! Placing an order whose saga a coordinator drives. The answer is the saga's end.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use bootstrap::{Json, Problem, RequestContext};
use tokio::time::{Duration, timeout};

use super::{
    orders::{self, OrderBody},
    place::{self, PlaceOrder},
    wait,
};
use crate::{
    App,
    domain::OrderStatus,
    placement::{Placed, Style},
};

/// Place an order, and have a coordinator drive its saga
///
/// The answer is the end of the saga, or the order as it is: after 30 seconds, or where too many wait. A repeat with the same `Idempotency-Key` and body
/// answers for the same order.
#[utoipa::path(post, path = "/api/orders/orchestrated", tag = "orders", request_body = PlaceOrder,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$", description = "1 to 128 visible ASCII characters, scoped to the customer")),
    responses(
        (status = 201, description = "The order, CONFIRMED", body = OrderBody, headers(("Location" = String, description = "The order"))),
        (status = 200, description = "Placed before under this key, and CONFIRMED", body = OrderBody,
            headers(("Idempotency-Replayed" = String, description = "true"))),
        (status = 202, description = "Its saga still runs", body = OrderBody, headers(("Location" = String, description = "The order"))),
        (status = 409, description = "The order was cancelled, for the reason in `detail`; or a request with this key is in flight", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn place_order_orchestrated(
    State(app): State<App>,
    context: RequestContext,
    headers: HeaderMap,
    Json(wanted): Json<PlaceOrder>,
) -> Result<(StatusCode, HeaderMap, Json<OrderBody>), Problem> {
    let placed = place::accept(&app, context, &headers, wanted, Style::Orchestrated).await?;
    let (status, answer) = place::answer(&placed)?;
    let order_id = placed.order_id();
    // Where too many wait, the answer is the order as it is.
    if let Ok(_waits) = app.waits.try_acquire() {
        await_end(&app, placed).await;
    }
    let order = orders::read(&app, order_id).await?;
    match order.status() {
        OrderStatus::Confirmed => Ok((status, answer, Json(order))),
        OrderStatus::Pending => Ok((StatusCode::ACCEPTED, answer, Json(order))),
        OrderStatus::Cancelled => Err(Problem::conflict(order.why_cancelled())),
    }
}

/// Until the order's saga has ended, for 30 seconds at most.
async fn await_end(app: &App, placed: Placed) {
    match placed {
        Placed::New { ended: Some(ended), .. } => {
            let limit = Duration::from_secs(wait::MAX_WAIT_SECONDS);
            // Without an end another replica goes on with the saga, or it waits to be compensated.
            let _ = app.draining.run_until_cancelled(timeout(limit, ended)).await;
        }
        placed => {
            let order_id = placed.order_id();
            if let Err(problem) = wait::until_ended(app, order_id, wait::MAX_WAIT_SECONDS).await {
                tracing::warn!(%order_id, %problem, "the wait for the order's end failed");
            }
        }
    }
}
