//! The catalogue: each change is published in the transaction that makes it.

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use bootstrap::{
    Json, JsonResult, Page, PageQuery, Path, Problem, Query, RequestContext, detached, http::path_segment,
};
use contracts::{
    Money, Sku,
    catalogue::{Product, ProductCreated, ProductDetailsChanged, ProductPriceChanged, ProductStatus},
    charge::Price,
};
use messaging::{
    Context, PublishError, UnitOfWork,
    outbox::{self, PastEvent},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::input;
use crate::{
    App,
    domain::{self, Changed, Changes, StockedProduct},
    replenishment, store,
};

/// A product to be added to the catalogue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewProduct {
    sku: Sku,
    #[schema(min_length = 1, max_length = 200, example = "Laptop 15\"")]
    name: String,
    #[serde(deserialize_with = "bootstrap::http::object")]
    price: Price,
    #[schema(minimum = 0, maximum = 1_000_000_000, example = 250)]
    initial_quantity: i64,
    #[schema(min_length = 1, max_length = 200, example = "computers")]
    category: Option<String>,
}

/// Changes of a product; omitted fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProductPatch {
    price: Option<Price>,
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// A DISCONTINUED product cannot be ordered any more; its reserved units stay reserved.
    status: Option<ProductStatus>,
}

/// A supply of stock.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replenishment {
    #[schema(minimum = 1, maximum = 1_000_000_000, example = 1000)]
    quantity: i64,
    #[schema(min_length = 1, max_length = 200, example = "delivery 4711")]
    reason: Option<String>,
}

/// Add a product to the catalogue
#[utoipa::path(post, path = "/api/products", tag = "products", request_body = NewProduct,
    responses((status = 201, description = "The product", body = StockedProduct,
            headers(("Location" = String, description = "The product's path"))),
        (status = 409, description = "The SKU exists", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_product(
    State(app): State<App>,
    request: RequestContext,
    Json(new): Json<NewProduct>,
) -> Result<impl IntoResponse, Problem> {
    input::validate([
        input::text("/name", Some(&new.name)),
        input::text("/category", new.category.as_deref()),
        input::price(Some(new.price.into())),
        input::currency(Some(new.price.into())),
        input::units("/initial_quantity", new.initial_quantity, 0),
    ])?;
    let location = format!("/api/products/{}", path_segment(new.sku.as_str()));
    let created = detached(async move { create(&app, &context_of(&request), new).await }).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(created)))
}

async fn create(app: &App, context: &Context, new: NewProduct) -> Result<StockedProduct, Problem> {
    let NewProduct { sku, name, price, category, initial_quantity } = new;
    let price = Money::from(price);
    let product = Product { sku, name, category, price, status: ProductStatus::Active, version: 1 };
    let mut work = app.participant.http_outbox.begin().await?;
    let Some(created) = store::insert_product(work.conn(), &product, initial_quantity).await? else {
        return Err(Problem::conflict(format!("There is a product {} already.", product.sku)));
    };
    work.publish_side_event(context, product.version, &ProductCreated { product }).map_err(unpublished)?;
    work.commit().await?;
    Ok(created)
}

/// One product with its stock
#[utoipa::path(get, path = "/api/products/{sku}", tag = "products",
    params(("sku" = Sku, Path, description = "The product's SKU")),
    responses((status = 200, description = "The product", body = StockedProduct),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_product(State(app): State<App>, Path(sku): Path<Sku>) -> JsonResult<StockedProduct> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let found = store::find_product(&mut conn, &sku).await?;
    found.map(Json).ok_or_else(|| unknown(&sku))
}

/// The events of a product, latest first
///
/// Its creation, changes and supplies; kept for `EVENT_RETENTION`. What is reserved for orders is in the events of those.
#[utoipa::path(get, path = "/api/products/{sku}/events", tag = "products", params(
        ("sku" = Sku, Path, description = "The product's SKU"), PageQuery),
    responses((status = 200, description = "A page of its events", body = Page<PastEvent>),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn product_events(
    State(app): State<App>,
    Path(sku): Path<Sku>,
    Query(page): Query<PageQuery>,
) -> JsonResult<Page<PastEvent>> {
    let mut conn = app.participant.pools.read.acquire().await?;
    store::find_product(&mut conn, &sku).await?.ok_or_else(|| unknown(&sku))?;
    let rows = outbox::of_aggregate::<ProductCreated>(&mut conn, sku.as_str(), page.after()?, page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |event| event.aggregate_sequence)))
}

/// The catalogue, in the order of the SKUs
///
/// Other lists are newest first. The order of this one never changes, so paging through it while stock changes returns every
/// product exactly once.
#[utoipa::path(get, path = "/api/products", tag = "products", params(PageQuery),
    responses((status = 200, description = "A page of products", body = Page<StockedProduct>)))]
pub(crate) async fn list_products(
    State(app): State<App>,
    Query(page): Query<PageQuery>,
) -> JsonResult<Page<StockedProduct>> {
    let after: Option<String> = page.after()?;
    let mut conn = app.participant.pools.read.acquire().await?;
    let rows = store::list_products(&mut conn, after.as_deref(), page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.product.sku.clone())))
}

/// Change a product's price, name or status
///
/// Without a difference the product is returned unchanged.
#[utoipa::path(patch, path = "/api/products/{sku}", tag = "products", request_body = ProductPatch,
    params(("sku" = Sku, Path, description = "The product's SKU")),
    responses((status = 200, description = "The product", body = StockedProduct),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn patch_product(
    State(app): State<App>,
    request: RequestContext,
    Path(sku): Path<Sku>,
    Json(patch): Json<ProductPatch>,
) -> JsonResult<StockedProduct> {
    let price = patch.price.map(Money::from);
    input::validate([input::text("/name", patch.name.as_deref()), input::price(price), input::currency(price)])?;
    let changes = Changes { price, name: patch.name, status: patch.status };
    let changed = detached(async move { change(&app, &context_of(&request), &sku, changes).await }).await?;
    Ok(Json(changed))
}

async fn change(app: &App, context: &Context, sku: &Sku, changes: Changes) -> Result<StockedProduct, Problem> {
    let mut work = app.participant.http_outbox.begin().await?;
    let locked = lock_product(&mut work, sku).await?;
    let (product, published) = match domain::change(&locked.product, changes) {
        Changed::Nothing => {
            work.commit_read().await?;
            return Ok(locked);
        }
        Changed::Price(product) => {
            let event = ProductPriceChanged { product: product.clone() };
            (product.clone(), work.publish_side_event(context, product.version, &event))
        }
        Changed::Details(product) => {
            let event = ProductDetailsChanged { product: product.clone() };
            (product.clone(), work.publish_side_event(context, product.version, &event))
        }
    };
    published.map_err(unpublished)?;
    let changed = store::save_details(work.conn(), &product).await?;
    work.commit().await?;
    Ok(changed)
}

/// Supply more of a product
#[utoipa::path(post, path = "/api/products/{sku}/replenish", tag = "products", request_body = Replenishment,
    params(("sku" = Sku, Path, description = "The product's SKU")),
    responses((status = 200, description = "The product", body = StockedProduct),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replenish_product(
    State(app): State<App>,
    request: RequestContext,
    Path(sku): Path<Sku>,
    Json(more): Json<Replenishment>,
) -> JsonResult<StockedProduct> {
    input::validate([input::units("/quantity", more.quantity, 1), input::text("/reason", more.reason.as_deref())])?;
    let replenished = detached(async move { replenish(&app, &context_of(&request), &sku, more).await }).await?;
    Ok(Json(replenished))
}

async fn replenish(app: &App, context: &Context, sku: &Sku, more: Replenishment) -> Result<StockedProduct, Problem> {
    let reason = more.reason.as_deref().unwrap_or("on request");
    let mut work = app.participant.http_outbox.begin().await?;
    let locked = lock_product(&mut work, sku).await?;
    let supplied = replenishment::supply(app, &mut work, context, &[locked], more.quantity, reason).await?;
    work.commit().await?;
    supplied.into_iter().next().ok_or_else(|| unknown(sku))
}

async fn lock_product(work: &mut UnitOfWork, sku: &Sku) -> Result<StockedProduct, Problem> {
    let locked = store::lock_products(work.conn(), [sku]).await?;
    locked.into_iter().next().ok_or_else(|| unknown(sku))
}

fn context_of(request: &RequestContext) -> Context {
    Context::of_request(&request.correlation_id, &request.traceparent)
}

fn unknown(sku: &Sku) -> Problem {
    Problem::not_found(format!("There is no product {sku}."))
}

/// An event that cannot be published is a defect of this program, not of the request.
fn unpublished(error: PublishError) -> Problem {
    Problem::internal(&error)
}
