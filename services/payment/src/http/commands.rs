//! The commands of a coordinator over HTTP.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Json, JsonResult, RequestContext};
use contracts::orchestrated::{Answer, Charge};

use crate::{App, commands};

/// Charge an order's card, once
///
/// A repeat is answered as the first command of the saga was; after the refund it is refused.
#[utoipa::path(post, path = "/api/saga/payment/process", tag = "commands", request_body = Charge,
    responses((status = 200, description = "Charged, or refused for a business reason", body = Answer)))]
pub(crate) async fn command_process_payment(
    State(app): State<App>,
    request: RequestContext,
    headers: HeaderMap,
    Json(command): Json<Charge>,
) -> JsonResult<Answer> {
    let charge = move |context| commands::charge(app.clone(), context, command.clone());
    participant::command(request, &headers, charge).await
}

/// Refund what an order was charged
///
/// Also answered when nothing was charged; afterwards a late command to charge is refused.
#[utoipa::path(post, path = "/api/saga/payment/refund", tag = "commands", request_body = Charge,
    responses((status = 200, description = "The order holds no money", body = Answer)))]
pub(crate) async fn command_refund_payment(
    State(app): State<App>,
    request: RequestContext,
    headers: HeaderMap,
    Json(command): Json<Charge>,
) -> JsonResult<Answer> {
    let refund = move |context| commands::refund(app.clone(), context, command.clone());
    participant::command(request, &headers, refund).await
}
