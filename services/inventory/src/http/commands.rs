//! The commands of a coordinator over HTTP.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Json, JsonResult, RequestContext};
use contracts::orchestrated::{Answer, ReleaseStock, ReserveStock};

use crate::{App, commands};

/// Reserve the stock of an order, all lines or none
///
/// A repeat is answered as the first command of the saga was; after the release it is refused.
#[utoipa::path(post, path = "/api/saga/inventory/reserve-stock", tag = "commands", request_body = ReserveStock,
    responses((status = 200, description = "Reserved, or refused for a business reason", body = Answer)))]
pub(crate) async fn command_reserve_stock(
    State(app): State<App>,
    request: RequestContext,
    headers: HeaderMap,
    Json(command): Json<ReserveStock>,
) -> JsonResult<Answer> {
    let reserve = move |context| commands::reserve(app.clone(), context, command.clone());
    participant::command(request, &headers, reserve).await
}

/// Release what an order holds
///
/// Also answered when it holds nothing; afterwards a late command to reserve is refused.
#[utoipa::path(post, path = "/api/saga/inventory/release-stock", tag = "commands", request_body = ReleaseStock,
    responses((status = 200, description = "The order holds nothing", body = Answer)))]
pub(crate) async fn command_release_stock(
    State(app): State<App>,
    request: RequestContext,
    headers: HeaderMap,
    Json(command): Json<ReleaseStock>,
) -> JsonResult<Answer> {
    let release = move |context| commands::release(app.clone(), context, command.clone());
    participant::command(request, &headers, release).await
}
