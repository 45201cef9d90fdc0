//! Order's view of the catalogue.

use std::time::Duration;

use axum::extract::State;
use bootstrap::{Json, Page, PageQuery, Path, Problem, Query, detached_within};
use contracts::{
    Money, Sku,
    catalogue::{Product, ProductStatus},
};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{
    App,
    catalogue::{self, RebuildError},
    store::{self, ViewedProduct},
};

/// A product as order knows it: eventually what inventory knows.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProductBody {
    #[schema(value_type = String)]
    sku: Sku,
    name: String,
    #[schema(required = true)]
    category: Option<String>,
    price: Money,
    /// `ACTIVE` or `DISCONTINUED`.
    #[schema(value_type = String)]
    status: ProductStatus,
    /// Inventory's count of the product's changes.
    version: i64,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// What a rebuild of the view did.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RebuildBody {
    /// Products in inventory's snapshot.
    products: usize,
    /// Rows of the view that were written.
    changed: u64,
    /// Rows of the view that inventory does not know.
    removed: u64,
}

/// The products, in the order of their SKUs
#[utoipa::path(get, path = "/api/products", tag = "products", params(PageQuery),
    responses((status = 200, description = "A page of products", body = Page<ProductBody>)))]
pub(super) async fn list_products(
    State(app): State<App>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<ProductBody>>, Problem> {
    let mut conn = app.participant.pools.read.acquire().await?;
    let after: Option<String> = page.after()?;
    let rows = store::list_products(&mut conn, after.as_deref(), page.rows()).await?;
    let page = Page::from_rows(rows, &page, |row| row.product.sku.to_string());
    Ok(Json(Page { items: page.items.into_iter().map(body).collect(), next_cursor: page.next_cursor }))
}

/// One product
#[utoipa::path(get, path = "/api/products/{sku}", tag = "products",
    params(("sku" = String, Path, description = "The product's SKU")),
    responses((status = 200, description = "The product", body = ProductBody),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_product(State(app): State<App>, Path(sku): Path<String>) -> Result<Json<ProductBody>, Problem> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::get_product(&mut conn, &sku).await?;
    let row = row.ok_or_else(|| Problem::not_found(format!("There is no product {sku}.")))?;
    Ok(Json(body(row)))
}

/// How long a rebuild may take, most of it for reading inventory's pages.
const REBUILD_LIMIT: Duration = Duration::from_secs(120);

/// Make the view equal to inventory's catalogue
#[utoipa::path(post, path = "/api/admin/catalogue/rebuild", tag = "administration",
    responses((status = 200, description = "The view is rebuilt", body = RebuildBody)))]
pub(super) async fn rebuild_catalogue(State(app): State<App>) -> Result<Json<RebuildBody>, Problem> {
    let rebuilt = detached_within(REBUILD_LIMIT, async move { catalogue::rebuild(&app).await }).await?;
    Ok(Json(RebuildBody { products: rebuilt.products, changed: rebuilt.changed, removed: rebuilt.removed }))
}

impl From<RebuildError> for Problem {
    fn from(error: RebuildError) -> Problem {
        match error {
            RebuildError::Database(error) => error.into(),
            RebuildError::Inventory(error) => {
                tracing::warn!(%error, "inventory did not give its snapshot");
                Problem::unavailable("Inventory does not answer; the view is as it was.", 5)
            }
        }
    }
}

fn body(row: ViewedProduct) -> ProductBody {
    let Product { sku, name, category, price, status, version } = row.product;
    ProductBody { sku, name, category, price, status, version, updated_at: row.updated_at }
}
