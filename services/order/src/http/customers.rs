//! Customers: who may order where `CUSTOMERS_REQUIRED` is set, and what each has ordered.

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use bootstrap::{Json, JsonResult, Page, PageQuery, Path, Problem, Query, detached, http::path_segment};
use contracts::charge;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    App,
    domain::CustomerStatus,
    store::{self, Customer, CustomerSummary},
};

/// A customer to be registered, as ACTIVE.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCustomer {
    /// As orders name it.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "alice")]
    customer_id: String,
}

/// A change of a customer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CustomerPatch {
    /// A SUSPENDED customer cannot order; earlier orders continue.
    status: CustomerStatus,
}

/// Register a customer
#[utoipa::path(post, path = "/api/customers", tag = "customers", request_body = NewCustomer,
    responses((status = 201, description = "The customer", body = Customer,
            headers(("Location" = String, description = "The customer's path"))),
        (status = 409, description = "There is one with this id", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create_customer(
    State(app): State<App>,
    Json(new): Json<NewCustomer>,
) -> Result<impl IntoResponse, Problem> {
    if !charge::is_name(&new.customer_id) {
        let detail = format!("1 to {} characters, none of them control characters.", charge::MAX_NAME);
        return Err(Problem::invalid("/customer_id", detail));
    }
    let created = detached(async move {
        let mut conn = app.participant.pools.http.acquire().await?;
        let created = store::insert_customer(&mut conn, &new.customer_id).await?;
        created.ok_or_else(|| Problem::conflict(format!("There is a customer {} already.", new.customer_id)))
    })
    .await?;
    let location = format!("/api/customers/{}", path_segment(&created.customer_id));
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(created)))
}

/// The registered customers, in the order of their ids
#[utoipa::path(get, path = "/api/customers", tag = "customers", params(PageQuery),
    responses((status = 200, description = "A page of customers", body = Page<Customer>)))]
pub(super) async fn list_customers(
    State(app): State<App>,
    Query(page): Query<PageQuery>,
) -> JsonResult<Page<Customer>> {
    let after: Option<String> = page.after()?;
    let mut conn = app.participant.pools.read.acquire().await?;
    let rows = store::list_customers(&mut conn, after.as_deref(), page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.customer_id.clone())))
}

/// One customer
#[utoipa::path(get, path = "/api/customers/{id}", tag = "customers",
    params(("id" = String, Path, description = "The customer's id")),
    responses((status = 200, description = "The customer", body = Customer),
        (status = 404, description = "No such customer", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_customer(State(app): State<App>, Path(id): Path<String>) -> JsonResult<Customer> {
    let mut conn = app.participant.pools.http.acquire().await?;
    store::find_customer(&mut conn, &id).await?.map(Json).ok_or_else(|| unknown(&id))
}

/// Suspend a customer, or activate them again
///
/// Once this is answered, no order of a suspended customer is accepted, where customers must be known. Without a difference the
/// customer is returned unchanged.
#[utoipa::path(patch, path = "/api/customers/{id}", tag = "customers", request_body = CustomerPatch,
    params(("id" = String, Path, description = "The customer's id")),
    responses((status = 200, description = "The customer", body = Customer),
        (status = 404, description = "No such customer", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn patch_customer(
    State(app): State<App>,
    Path(id): Path<String>,
    Json(patch): Json<CustomerPatch>,
) -> JsonResult<Customer> {
    let changed = detached(async move {
        let mut conn = app.participant.pools.http.acquire().await?;
        let changed = store::set_customer_status(&mut conn, &id, patch.status).await?;
        changed.ok_or_else(|| unknown(&id))
    });
    Ok(Json(changed.await?))
}

/// The orders of a customer, summed up
///
/// As of `refreshed_at`, at most some `CUSTOMER_SUMMARY_EVERY` ago. Also of customers who have ordered and are not registered.
#[utoipa::path(get, path = "/api/customers/{id}/summary", tag = "customers",
    params(("id" = String, Path, description = "The customer's id")),
    responses((status = 200, description = "The summary", body = CustomerSummary),
        (status = 404, description = "Not registered, and no order at that time", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_customer_summary(
    State(app): State<App>,
    Path(id): Path<String>,
) -> JsonResult<CustomerSummary> {
    let mut conn = app.participant.pools.read.acquire().await?;
    store::summary_of(&mut conn, &id).await?.map(Json).ok_or_else(|| unknown(&id))
}

fn unknown(id: &str) -> Problem {
    Problem::not_found(format!("There is no customer {id}."))
}
