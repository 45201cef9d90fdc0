//! The processor's routes. Effects run detached from their request, because a real processor does not stop when its caller
//! disconnects; [`Reply::Dropped`] drops the connection without an answer.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use bootstrap::{Json, JsonResult, Path, Problem, Query, detached_within};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use self::{
    body::{ChargeBody, TotalsView},
    faults::{FaultsView, validated},
    key::Key,
};
use crate::{
    domain::{ChargeAnswer, Reconciliation, Statement, VoidAnswer},
    faults::FaultSettings,
    gateway::{Gateway, GatewayError, Reply},
};

mod body;
mod faults;
mod key;

/// Marks the stored answer to a request seen before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How long an operation may take, including injected latency.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(120);

/// All routes with their OpenAPI description.
pub fn routes(gateway: Arc<Gateway>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(charge, find_charge))
        .routes(routes!(refund))
        .routes(routes!(void))
        .routes(routes!(totals))
        .routes(routes!(reconcile))
        .routes(routes!(show_faults, arm_faults, disarm_faults))
        .with_state(gateway)
}

/// Charge a card
///
/// The same key and body always give the same answer, a decline included; a repeated answer carries
/// `Idempotency-Replayed: true`. A capture is on disk before it is answered. Test tokens: `tok_visa` is approved;
/// `tok_declined`, `tok_insufficient_funds`, `tok_expired` and unknown tokens are declined, amounts over 10,000.00 too;
/// `tok_slow` is approved after 8 s; `tok_flaky` is approved after two 503; `tok_unknown_outcome` is captured and the
/// connection dropped without an answer.
#[utoipa::path(post, path = "/v1/charges", tag = "charges", params(Key), request_body = ChargeBody,
    responses((status = 201, description = "Captured", body = ChargeAnswer),
        (status = 200, description = "Captured by an earlier request with this key and body", body = ChargeAnswer),
        (status = 402, description = "Declined; stored for the key", body = ChargeAnswer)))]
async fn charge(
    State(gateway): State<Arc<Gateway>>,
    Key(key): Key,
    Json(body): Json<ChargeBody>,
) -> Result<Response, Problem> {
    let request = body.validated()?;
    let reply = detached_within(OPERATION_TIMEOUT, async move { gateway.charge(&key, &request).await }).await?;
    Ok(answer(reply, |outcome, replayed| match outcome {
        ChargeAnswer::Captured(_) if replayed => StatusCode::OK,
        ChargeAnswer::Captured(_) => StatusCode::CREATED,
        ChargeAnswer::Declined { .. } => StatusCode::PAYMENT_REQUIRED,
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FindCharge {
    /// The key the charge was made with.
    idempotency_key: String,
}

/// Look up the outcome of a key
///
/// A voided key has the outcome of a charge with it: declined with `voided`.
#[utoipa::path(get, path = "/v1/charges", tag = "charges", params(FindCharge),
    responses((status = 200, description = "The key's outcome", body = ChargeAnswer),
        (status = 404, description = "The key was never seen", body = Problem, content_type = "application/problem+json")))]
async fn find_charge(State(gateway): State<Arc<Gateway>>, Query(query): Query<FindCharge>) -> JsonResult<ChargeAnswer> {
    let outcome = gateway.outcome(&query.idempotency_key).await.map_err(GatewayError::from)?;
    let unknown = || Problem::not_found("No charge, decline or void has this idempotency key.");
    outcome.map(Json).ok_or_else(unknown)
}

/// Refund a charge in full
///
/// Idempotent: a charge is refunded once, however often this is called.
#[utoipa::path(post, path = "/v1/charges/{charge_id}/refund", tag = "charges",
    params(("charge_id" = Uuid, Path, description = "The charge")),
    responses((status = 200, description = "Refunded, now or before", body = ChargeAnswer),
        (status = 404, description = "No such charge", body = Problem, content_type = "application/problem+json")))]
async fn refund(State(gateway): State<Arc<Gateway>>, Path(charge_id): Path<Uuid>) -> Result<Response, Problem> {
    let reply = detached_within(OPERATION_TIMEOUT, async move { gateway.refund(charge_id).await }).await?;
    Ok(answer(reply, |_, _| StatusCode::OK))
}

/// Void a key
///
/// Refunds the key's charge, or, when there is none, declines every later charge with this key. Idempotent.
#[utoipa::path(post, path = "/v1/voids", tag = "charges", params(Key),
    responses((status = 200, description = "The key holds no money and never will", body = VoidAnswer),
        (status = 400, description = "No key", body = Problem, content_type = "application/problem+json")))]
async fn void(State(gateway): State<Arc<Gateway>>, Key(key): Key) -> Result<Response, Problem> {
    let reply = detached_within(OPERATION_TIMEOUT, async move { gateway.void(&key).await }).await?;
    Ok(answer(reply, |_, _| StatusCode::OK))
}

/// Sums and counts by currency
#[utoipa::path(get, path = "/v1/totals", tag = "charges",
    responses((status = 200, description = "Everything ever charged and refunded, in minor units", body = TotalsView)))]
async fn totals(State(gateway): State<Arc<Gateway>>) -> JsonResult<TotalsView> {
    Ok(Json(TotalsView { totals: gateway.totals().await.map_err(GatewayError::from)? }))
}

/// Compare ledgers
///
/// Sums as of one position of the ledger, without the given keys and without those that changed since an earlier position. A
/// caller that reads its own ledger between the two positions compares what did not change.
#[utoipa::path(post, path = "/v1/reconciliations", tag = "charges", request_body = Reconciliation,
    responses((status = 200, description = "The ledger as of `position`", body = Statement)))]
async fn reconcile(State(gateway): State<Arc<Gateway>>, Json(request): Json<Reconciliation>) -> JsonResult<Statement> {
    let statement = gateway.reconcile(&request).await.map_err(GatewayError::from)?;
    let ahead = || Problem::unprocessable("The position in `since` is after the end of the ledger.");
    statement.map(Json).ok_or_else(ahead)
}

/// Show the armed faults
#[utoipa::path(get, path = "/v1/faults", tag = "faults",
    responses((status = 200, description = "The armed faults with the remaining time", body = FaultsView)))]
async fn show_faults(State(gateway): State<Arc<Gateway>>) -> Json<FaultsView> {
    Json(gateway.armed().into())
}

/// Arm faults for charges, refunds and voids
///
/// Replaces earlier faults. Faults always expire. Which requests are hit depends on the seed only.
#[utoipa::path(post, path = "/v1/faults", tag = "faults", request_body = FaultSettings,
    responses((status = 200, description = "Armed", body = FaultsView)))]
async fn arm_faults(State(gateway): State<Arc<Gateway>>, Json(faults): Json<FaultSettings>) -> JsonResult<FaultsView> {
    let settings = validated(faults)?;
    tracing::warn!(?settings, "faults armed");
    gateway.arm(settings);
    Ok(Json(gateway.armed().into()))
}

/// Disarm all faults
#[utoipa::path(delete, path = "/v1/faults", tag = "faults",
    responses((status = 204, description = "Nothing is armed")))]
async fn disarm_faults(State(gateway): State<Arc<Gateway>>) -> StatusCode {
    gateway.disarm();
    StatusCode::NO_CONTENT
}

fn answer<T: Serialize>(reply: Reply<T>, status: impl FnOnce(&T, bool) -> StatusCode) -> Response {
    match reply {
        Reply::Fresh(value) => (status(&value, false), Json(value)).into_response(),
        Reply::Replayed(value) => (status(&value, true), [(REPLAYED, "true")], Json(value)).into_response(),
        Reply::Dropped => dropped_connection(),
    }
}

/// hyper polls the body before it flushes the head, and drops the connection when the body fails, so the caller receives no byte.
/// Only the metrics see the status; the content type prevents a problem document.
fn dropped_connection() -> Response {
    let failure = io::Error::new(io::ErrorKind::ConnectionAborted, "the answer is dropped by a fault");
    let body = Body::from_stream(stream::iter([Err::<Bytes, _>(failure)]));
    (StatusCode::BAD_GATEWAY, [(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

impl From<GatewayError> for Problem {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::KeyReused(_) => {
                Problem::unprocessable("This Idempotency-Key was used with another request body. Use a new key.")
            }
            GatewayError::UnknownCharge(unknown) => Problem::not_found(format!("There is no charge {}.", unknown.0)),
            GatewayError::Unavailable => {
                Problem::unavailable("The processor is temporarily unavailable. Nothing happened; try again.", 1)
            }
            // It is unknown whether the last write reached the disk; 503 would mean that it did not.
            GatewayError::JournalStopped(stopped) => Problem::internal(&stopped),
        }
    }
}
