//! The routes of the payment service: reading payments, and refunding a charge whose order a restored database does not have.

mod commands;

use axum::extract::State;
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, RequestContext, detached};
use contracts::{
    Money, OrderId,
    charge::{MIN_AMOUNT, Price},
};
use messaging::{Context, StepError};
use saga_store::query::{self, Filter};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    App, forgotten,
    store::{self, NewPayment, PaymentRow},
};

pub(crate) fn routes(app: App) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list_payments))
        .routes(routes!(get_payment))
        .routes(routes!(refund_forgotten_charge))
        .routes(routes!(commands::command_process_payment))
        .routes(routes!(commands::command_refund_payment))
        .with_state(app)
}

/// The status of a payment
#[derive(Debug, ToSchema)]
#[schema(rename_all = "UPPERCASE")]
#[expect(dead_code, reason = "describes the status in the OpenAPI document")]
enum PaymentStatusBody {
    /// The gateway's answer is not known yet.
    Pending,
    Captured,
    Declined,
    Refunded,
    /// Cancelled before anything was captured.
    Voided,
}

/// The payment of an order; every order has at most one.
#[derive(Debug, Serialize, ToSchema)]
struct PaymentBody {
    /// Also the idempotency key of its calls to the gateway.
    payment_id: Uuid,
    order_id: Uuid,
    saga_id: Uuid,
    amount: Money,
    /// The card's token.
    #[schema(example = "tok_visa")]
    method: String,
    #[schema(value_type = PaymentStatusBody)]
    status: String,
    /// The gateway's id of the charge.
    #[schema(required = true)]
    gateway_reference: Option<String>,
    #[schema(required = true)]
    decline_code: Option<String>,
    /// When the order's cancellation was recorded; afterwards nothing is charged.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    cancelled_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    captured_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    refunded_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PaymentQuery {
    /// Only this order's payment.
    order_id: Option<Uuid>,
}

/// Payments, newest first
#[utoipa::path(get, path = "/api/payments", tag = "payments", params(PaymentQuery, PageQuery),
    responses((status = 200, description = "A page of payments", body = Page<PaymentBody>)))]
async fn list_payments(
    State(app): State<App>,
    Filtered(query, page): Filtered<PaymentQuery>,
) -> JsonResult<Page<PaymentBody>> {
    let before = page.after()?.unwrap_or(Uuid::max());
    let mut conn = app.participant.pools.read.acquire().await?;
    let rows = match query.order_id {
        Some(order_id) => {
            let found = store::find_payment(&mut conn, OrderId(order_id)).await?;
            found.into_iter().filter(|row| row.payment_id < before).collect()
        }
        None => store::list_payments(&mut conn, before, page.rows()).await?,
    };
    let Page { items, next_cursor } = Page::from_rows(rows, &page, |row| row.payment_id);
    Ok(Json(Page { items: items.into_iter().map(body).collect::<Result<_, _>>()?, next_cursor }))
}

/// One payment
#[utoipa::path(get, path = "/api/payments/{id}", tag = "payments",
    params(("id" = Uuid, Path, description = "The payment's id")),
    responses((status = 200, description = "The payment", body = PaymentBody),
        (status = 404, description = "No such payment", body = Problem, content_type = "application/problem+json")))]
async fn get_payment(State(app): State<App>, Path(id): Path<Uuid>) -> JsonResult<PaymentBody> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::get_payment(&mut conn, id).await?;
    body(row.ok_or_else(|| Problem::not_found(format!("There is no payment {id}.")))?).map(Json)
}

/// A charge at the card processor whose order a restored database does not have
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForgottenCharge {
    /// The order in the charge; a UUIDv7, like every order's id.
    #[schema(value_type = Uuid, pattern = "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$")]
    order_id: OrderId,
    /// The charged amount.
    #[serde(deserialize_with = "bootstrap::http::object")]
    amount: Price,
}

/// Refund a charge whose order a restored database does not have
///
/// Afterwards the payment is REFUNDED, or VOIDED if nothing was charged, and the order is never charged again; a repeat
/// changes nothing.
#[utoipa::path(post, path = "/api/admin/forgotten-charges", tag = "administration", request_body = ForgottenCharge,
    responses((status = 200, description = "The payment, which holds no money", body = PaymentBody),
        (status = 409, description = "The order is known, and can be cancelled", body = Problem, content_type = "application/problem+json")))]
async fn refund_forgotten_charge(
    State(app): State<App>,
    context: RequestContext,
    Json(ForgottenCharge { order_id, amount }): Json<ForgottenCharge>,
) -> JsonResult<PaymentBody> {
    // The payment's id is the order's, but for its version: two orders of different versions had the same.
    if order_id.0.get_version_num() != 7 {
        return Err(Problem::invalid("/order_id", "must be a UUIDv7"));
    }
    if amount.amount < MIN_AMOUNT {
        return Err(Problem::invalid("/amount/amount", format!("must be at least {MIN_AMOUNT}")));
    }
    if !amount.currency.is_listed() {
        return Err(Problem::invalid("/amount/currency", "must be a currency of ISO 4217"));
    }
    let known = || Problem::conflict(format!("Order {order_id} is known: cancel it, and it is refunded."));
    let of_order = Filter { business_key: Some(order_id.0), ..Filter::default() };
    if !query::walk(&app.participant.pools.http, &of_order, Uuid::max(), 1).await?.is_empty() {
        return Err(known());
    }
    let context = Context::of_request(context.correlation_id, &context.traceparent);
    // Its saga does not exist either.
    let forgotten =
        NewPayment { order_id, saga_id: Uuid::nil(), amount: amount.into(), method: "forgotten".to_owned() };
    let shared = app.clone();
    let refund = async move { forgotten::refund(&shared, forgotten, &context).await.map_err(|e| problem(&e)) };
    if !detached(refund).await? {
        return Err(known());
    }
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::find_payment(&mut conn, order_id).await?.ok_or_else(known)?;
    body(row).map(Json)
}

fn problem(error: &StepError) -> Problem {
    match error {
        StepError::Unavailable(_) => {
            Problem::unavailable("The database or the card processor cannot be reached; try again.", 1)
        }
        StepError::Contended(_) => {
            Problem::unavailable("Too many concurrent requests for the same rows; try again.", 1)
        }
        StepError::Failed(error) | StepError::Poison(error) => Problem::internal(&**error),
    }
}

fn body(row: PaymentRow) -> Result<PaymentBody, Problem> {
    Ok(PaymentBody {
        amount: row.money()?,
        payment_id: row.payment_id,
        order_id: row.order_id,
        saga_id: row.saga_id,
        method: row.method,
        status: row.status,
        gateway_reference: row.gateway_reference,
        decline_code: row.decline_code,
        cancelled_at: row.cancelled_at,
        captured_at: row.captured_at,
        refunded_at: row.refunded_at,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
