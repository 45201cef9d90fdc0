//! The processor's routes. Effects run detached from their request, because a real processor does not stop half-way
//! when its caller hangs up; a [`Reply::Dropped`] breaks the connection off without an answer.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bootstrap::{Json, Path, Problem, Query, detached_within};
use futures_util::stream;
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use self::{
    body::{CapturedView, ChargeBody, DeclinedView, OutcomeView, TotalsView, VoidView},
    faults::{FaultsBody, FaultsView},
    key::Key,
    reconciliation::{ReconciliationBody, StatementView},
};
use crate::{
    charge::IdempotencyKey,
    domain::ChargeAnswer,
    gateway::{Gateway, GatewayError, Reply},
};

mod body;
mod faults;
mod key;
mod reconciliation;

/// Marks the stored answer to a request seen before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How long an operation may take, with whatever latency is asked of it.
const LONGEST: Duration = Duration::from_secs(120);

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
    responses((status = 201, description = "Captured", body = CapturedView),
        (status = 200, description = "Captured by an earlier request with this key and body", body = CapturedView),
        (status = 402, description = "Declined; stored for the key", body = DeclinedView)))]
async fn charge(
    State(gateway): State<Arc<Gateway>>,
    Key(key): Key,
    Json(body): Json<ChargeBody>,
) -> Result<Response, Problem> {
    let request = body.validated()?;
    let reply = detached_within(LONGEST, async move { gateway.charge(&key, &request).await }).await?;
    Ok(answer(reply, |outcome, replayed| match outcome {
        ChargeAnswer::Captured(charge) => {
            let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
            (status, Json(CapturedView::from(charge))).into_response()
        }
        ChargeAnswer::Declined(decline) => {
            (StatusCode::PAYMENT_REQUIRED, Json(DeclinedView::from(decline))).into_response()
        }
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FindCharge {
    /// The key the charge was made with.
    idempotency_key: String,
}

/// Ask what became of a key
///
/// A voided key is answered as what a charge with it would get: declined with `voided`.
#[utoipa::path(get, path = "/v1/charges", tag = "charges", params(FindCharge),
    responses((status = 200, description = "The key's outcome", body = OutcomeView),
        (status = 404, description = "The key was never seen", body = Problem, content_type = "application/problem+json")))]
async fn find_charge(
    State(gateway): State<Arc<Gateway>>,
    Query(query): Query<FindCharge>,
) -> Result<Json<OutcomeView>, Problem> {
    let unknown = || Problem::not_found("No charge, decline or void has this idempotency key.");
    let key = IdempotencyKey::parse(&query.idempotency_key).ok_or_else(unknown)?;
    let outcome = gateway.outcome(&key).await.map_err(GatewayError::from)?.ok_or_else(unknown)?;
    Ok(Json(outcome.into()))
}

/// Refund a charge in full
///
/// Idempotent: a charge is refunded once, however often this is called.
#[utoipa::path(post, path = "/v1/charges/{charge_id}/refund", tag = "charges",
    params(("charge_id" = Uuid, Path, description = "The charge")),
    responses((status = 200, description = "Refunded, now or before", body = CapturedView),
        (status = 404, description = "No such charge", body = Problem, content_type = "application/problem+json")))]
async fn refund(State(gateway): State<Arc<Gateway>>, Path(charge_id): Path<Uuid>) -> Result<Response, Problem> {
    let reply = detached_within(LONGEST, async move { gateway.refund(charge_id).await }).await?;
    Ok(answer(reply, |charge, _| Json(CapturedView::from(charge)).into_response()))
}

/// Make sure that a key holds no money
///
/// Refunds the key's charge, or, when there is none, refuses every later charge with this key. Idempotent.
#[utoipa::path(post, path = "/v1/voids", tag = "charges", params(Key),
    responses((status = 200, description = "The key holds no money and never will", body = VoidView),
        (status = 400, description = "No key", body = Problem, content_type = "application/problem+json")))]
async fn void(State(gateway): State<Arc<Gateway>>, Key(key): Key) -> Result<Response, Problem> {
    let reply = detached_within(LONGEST, async move { gateway.void(&key).await }).await?;
    Ok(answer(reply, |outcome, _| Json(VoidView::from(outcome)).into_response()))
}

/// Sums and counts by currency
#[utoipa::path(get, path = "/v1/totals", tag = "charges",
    responses((status = 200, description = "Everything ever charged and refunded, in minor units", body = TotalsView)))]
async fn totals(State(gateway): State<Arc<Gateway>>) -> Result<Json<TotalsView>, Problem> {
    Ok(Json(gateway.totals().await.map_err(GatewayError::from)?.into()))
}

/// Compare books
///
/// Sums as of one position of the ledger, without the keys that are named and without those that have changed since a
/// position that was told before. Whoever reads their own books between the two positions compares what did not move.
#[utoipa::path(post, path = "/v1/reconciliations", tag = "charges", request_body = ReconciliationBody,
    responses((status = 200, description = "The ledger as of `position`", body = StatementView)))]
async fn reconcile(
    State(gateway): State<Arc<Gateway>>,
    Json(body): Json<ReconciliationBody>,
) -> Result<Json<StatementView>, Problem> {
    let statement = gateway.reconcile(&body.into()).await.map_err(GatewayError::from)?;
    let ahead = || Problem::unprocessable("The ledger has not come to the position in `since`.");
    Ok(Json(statement.ok_or_else(ahead)?.into()))
}

/// Show the armed faults
#[utoipa::path(get, path = "/v1/faults", tag = "faults",
    responses((status = 200, description = "What is armed, and for how long still", body = FaultsView)))]
async fn show_faults(State(gateway): State<Arc<Gateway>>) -> Json<FaultsView> {
    Json(gateway.armed().into())
}

/// Arm faults for charges, refunds and voids
///
/// Replaces what was armed before. They always expire. Which requests are struck depends on the seed only.
#[utoipa::path(post, path = "/v1/faults", tag = "faults", request_body = FaultsBody,
    responses((status = 200, description = "Armed", body = FaultsView)))]
async fn arm_faults(
    State(gateway): State<Arc<Gateway>>,
    Json(body): Json<FaultsBody>,
) -> Result<Json<FaultsView>, Problem> {
    let (settings, expires_in) = body.validated()?;
    tracing::warn!(?settings, ?expires_in, "faults armed");
    gateway.arm(settings, expires_in);
    Ok(Json(gateway.armed().into()))
}

/// Disarm all faults
#[utoipa::path(delete, path = "/v1/faults", tag = "faults",
    responses((status = 204, description = "Nothing is armed")))]
async fn disarm_faults(State(gateway): State<Arc<Gateway>>) -> StatusCode {
    gateway.disarm();
    StatusCode::NO_CONTENT
}

fn answer<T>(reply: Reply<T>, show: impl FnOnce(T, bool) -> Response) -> Response {
    match reply {
        Reply::Fresh(value) => show(value, false),
        Reply::Replayed(value) => {
            let mut response = show(value, true);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Reply::Dropped => dropped_connection(),
    }
}

/// hyper polls the body before it flushes the head, and gives the connection up when the body fails: the caller gets
/// not a single byte. The status is seen by our own metrics only; the content type keeps the shell from describing it.
fn dropped_connection() -> Response {
    let failure = io::Error::new(io::ErrorKind::ConnectionAborted, "the answer is lost on purpose");
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
                Problem::unavailable("The processor is unavailable at the moment. Nothing happened; try again.", 1)
            }
            // Whether the last write reached the disk is unknown, which 503 would deny.
            GatewayError::JournalStopped(stopped) => Problem::internal(&stopped),
        }
    }
}
