//! Order's view of the catalogue: updated by inventory's events, and rebuilt from its REST API periodically and on
//! request, because no saga detects a lost event of the catalogue. A row is replaced only by a higher version of the
//! product, so events and rebuilds do not conflict.

use contracts::catalogue::{Product, ProductCreated, ProductDetailsChanged, ProductPriceChanged};
use messaging::{Batch, StepResult, lease, periodic::every};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::{App, store};

pub(crate) async fn project_product_created(app: App, batch: Batch<ProductCreated>) -> StepResult {
    project(app, batch, |event| event.product).await
}

pub(crate) async fn project_product_price_changed(app: App, batch: Batch<ProductPriceChanged>) -> StepResult {
    project(app, batch, |event| event.product).await
}

pub(crate) async fn project_product_details_changed(app: App, batch: Batch<ProductDetailsChanged>) -> StepResult {
    project(app, batch, |event| event.product).await
}

async fn project<E>(app: App, batch: Batch<E>, product: fn(E) -> Product) -> StepResult {
    let (mut work, deliveries) = app.participant.outbox.claim(batch).await?;
    let products: Vec<Product> = deliveries.into_iter().map(|d| product(d.event)).collect();
    store::upsert_products(work.conn(), &products, false).await?;
    work.commit().await
}

/// Why the view could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RebuildError {
    #[error("inventory does not answer")]
    Inventory(#[from] reqwest::Error),
    #[error("the database cannot be reached")]
    Database(#[from] sqlx::Error),
}

/// The result of a rebuild of the view.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RebuildBody)]
pub(crate) struct Rebuilt {
    /// Products in inventory's snapshot.
    products: usize,
    /// Rows of the view that were written.
    changed: u64,
    /// Deleted rows of products that inventory does not have.
    removed: u64,
}

/// Compares the view with inventory every `catalogue_rebuild_every`, by one replica at a time.
pub(crate) async fn run(app: App, stop: CancellationToken) {
    let period = app.config.catalogue_rebuild_every;
    // In the first period the events suffice.
    tokio::select! {
        () = tokio::time::sleep(period) => {}
        () = stop.cancelled() => return,
    }
    every(period, &stop, || async {
        match leased_rebuild(&app).await {
            Ok(Some(Rebuilt { changed, removed, .. })) if changed + removed > 0 => {
                tracing::info!(changed, removed, "the product view differed from inventory and was rebuilt");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the product view could not be compared; retried in the next period"),
        }
    })
    .await;
}

/// None when another replica holds the lease, or inventory's list is empty: then the view is kept.
async fn leased_rebuild(app: &App) -> Result<Option<Rebuilt>, RebuildError> {
    let pool = &app.participant.pools.work;
    let mut conn = pool.acquire().await?;
    let ttl = app.config.catalogue_rebuild_every;
    let held = lease::hold(&mut conn, "catalogue", &app.participant.holder, ttl).await?;
    drop(conn);
    if !held {
        return Ok(None);
    }
    // Before the transaction, which must not wait for inventory.
    let begun = store::now(pool).await?;
    let products = products_of_inventory(app).await?;
    if products.is_empty() { Ok(None) } else { Ok(Some(replace(pool, &products, begun).await?)) }
}

/// Reads a snapshot from inventory, and updates the view to at least its versions.
pub(crate) async fn rebuild(app: &App) -> Result<Rebuilt, RebuildError> {
    let pool = &app.participant.pools.http;
    let begun = store::now(pool).await?;
    let products = products_of_inventory(app).await?;
    Ok(replace(pool, &products, begun).await?)
}

/// Makes the view equal to inventory's products, which were read from `begun` on.
async fn replace(pool: &PgPool, products: &[Product], begun: OffsetDateTime) -> Result<Rebuilt, sqlx::Error> {
    let skus: Vec<String> = products.iter().map(|p| p.sku.to_string()).collect();
    let mut transaction = pool.begin().await?;
    let removed = store::delete_products_not_in(&mut transaction, &skus, begun).await?;
    let changed = store::upsert_products(&mut transaction, products, true).await?;
    transaction.commit().await?;
    Ok(Rebuilt { products: products.len(), changed, removed })
}

/// The part of inventory's product list that the view needs.
#[derive(Debug, Deserialize)]
struct Listed {
    items: Vec<Product>,
    next_cursor: Option<String>,
}

async fn products_of_inventory(app: &App) -> Result<Vec<Product>, RebuildError> {
    let url = format!("{}/api/products", app.config.inventory_url);
    let mut products = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut request = app.inventory.get(&url).query(&[("limit", "200")]);
        if let Some(cursor) = &cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        let page: Listed = request.send().await?.error_for_status()?.json().await?;
        products.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(products);
        }
    }
}
