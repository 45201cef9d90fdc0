//! The routes of the payment service: what became of an order's payment.

use axum::extract::State;
use bootstrap::{
    Json, Page, PageQuery, Path, Problem, Query,
    http::{Cursor, Limit},
};
use contracts::Money;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    App,
    store::{self, PaymentRow},
};

pub(crate) fn routes(app: App) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(list_payments)).routes(routes!(get_payment)).with_state(app)
}

/// Where a payment stands
#[derive(Debug, ToSchema)]
#[schema(rename_all = "UPPERCASE")]
#[expect(dead_code, reason = "describes the status in the OpenAPI document")]
enum PaymentStatusBody {
    /// The gateway is being asked, or its answer is not known yet.
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
    /// Also the idempotency key under which the gateway was asked.
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
    /// When the order's cancellation was seen: from then on nothing was charged.
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
    /// Payments per page.
    #[serde(default)]
    #[param(value_type = Option<Limit>)]
    limit: Limit,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
}

/// Payments, newest first
#[utoipa::path(get, path = "/api/payments", tag = "payments", params(PaymentQuery),
    responses((status = 200, description = "A page of payments", body = Page<PaymentBody>)))]
async fn list_payments(
    State(app): State<App>,
    Query(query): Query<PaymentQuery>,
) -> Result<Json<Page<PaymentBody>>, Problem> {
    let page = PageQuery::new(query.limit, query.cursor);
    let before = page.after()?.unwrap_or(Uuid::max());
    let mut conn = app.participant.pools.read.acquire().await?;
    let rows = match query.order_id {
        Some(order_id) => store::find_payment(&mut conn, order_id, before).await?,
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
async fn get_payment(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<PaymentBody>, Problem> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::get_payment(&mut conn, id).await?;
    row.map_or_else(|| Err(Problem::not_found(format!("There is no payment {id}."))), |row| body(row).map(Json))
}

fn body(row: PaymentRow) -> Result<PaymentBody, Problem> {
    Ok(PaymentBody {
        amount: row.money().map_err(|error| Problem::internal(&error))?,
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
