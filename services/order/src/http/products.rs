//! Order's view of the catalogue.

use std::time::Duration;

use axum::extract::State;
use bootstrap::{Json, JsonResult, Page, PageQuery, Path, Problem, Query, detached_within};

use crate::{
    App,
    catalogue::{self, RebuildError, Rebuilt},
    store::{self, ViewedProduct},
};

/// The products, in the order of their SKUs
#[utoipa::path(get, path = "/api/products", tag = "products", params(PageQuery),
    responses((status = 200, description = "A page of products", body = Page<ViewedProduct>)))]
pub(super) async fn list_products(
    State(app): State<App>,
    Query(page): Query<PageQuery>,
) -> JsonResult<Page<ViewedProduct>> {
    let mut conn = app.participant.pools.read.acquire().await?;
    let after: Option<String> = page.after()?;
    let rows = store::list_products(&mut conn, after.as_deref(), page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.product.sku.to_string())))
}

/// One product
#[utoipa::path(get, path = "/api/products/{sku}", tag = "products",
    params(("sku" = String, Path, description = "The product's SKU")),
    responses((status = 200, description = "The product", body = ViewedProduct),
        (status = 404, description = "No such product", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_product(State(app): State<App>, Path(sku): Path<String>) -> JsonResult<ViewedProduct> {
    let mut conn = app.participant.pools.http.acquire().await?;
    let row = store::get_product(&mut conn, &sku).await?;
    row.map(Json).ok_or_else(|| Problem::not_found(format!("There is no product {sku}.")))
}

/// The time limit of a rebuild; reading inventory's pages takes most of it.
const REBUILD_LIMIT: Duration = Duration::from_secs(120);

/// Make the view equal to inventory's catalogue
#[utoipa::path(post, path = "/api/admin/catalogue/rebuild", tag = "administration",
    responses((status = 200, description = "The view is rebuilt", body = Rebuilt)))]
pub(super) async fn rebuild_catalogue(State(app): State<App>) -> JsonResult<Rebuilt> {
    Ok(Json(detached_within(REBUILD_LIMIT, async move { catalogue::rebuild(&app).await }).await?))
}

impl From<RebuildError> for Problem {
    fn from(error: RebuildError) -> Problem {
        match error {
            RebuildError::Database(error) => error.into(),
            RebuildError::Inventory(error) => {
                tracing::warn!(%error, "inventory's products could not be read");
                Problem::unavailable("Inventory does not answer; the view is unchanged.", 5)
            }
        }
    }
}
