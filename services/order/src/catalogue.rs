//! Order's view of the catalogue: kept by inventory's events, and rebuilt from its REST API now and then, and when
//! somebody asks: no saga would ever miss an event that is lost on its way here. A product's version decides which is
//! newer, so the two never fight.

use contracts::{
    Money, Sku,
    catalogue::{Product, ProductCreated, ProductDetailsChanged, ProductPriceChanged, ProductStatus},
};
use messaging::{Batch, Committed, StepError, housekeeping::every, lease};
use serde::Deserialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::{App, store};

pub(crate) async fn project_product_created(app: App, batch: Batch<ProductCreated>) -> Result<Committed, StepError> {
    project(app, batch, |event| event.product).await
}

pub(crate) async fn project_product_price_changed(
    app: App,
    batch: Batch<ProductPriceChanged>,
) -> Result<Committed, StepError> {
    project(app, batch, |event| event.product).await
}

pub(crate) async fn project_product_details_changed(
    app: App,
    batch: Batch<ProductDetailsChanged>,
) -> Result<Committed, StepError> {
    project(app, batch, |event| event.product).await
}

async fn project<E>(app: App, batch: Batch<E>, product: fn(E) -> Product) -> Result<Committed, StepError> {
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
    #[error("the database is away")]
    Database(#[from] sqlx::Error),
}

/// What a rebuild did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rebuilt {
    pub(crate) products: usize,
    pub(crate) changed: u64,
    pub(crate) removed: u64,
}

/// Compares the view with inventory every `catalogue_rebuild_every`, by one replica at a time.
pub(crate) async fn run(app: App, stop: CancellationToken) {
    let period = app.config.catalogue_rebuild_every;
    // Events tell of what happens in the first period.
    tokio::select! {
        () = tokio::time::sleep(period) => {}
        () = stop.cancelled() => return,
    }
    every(period, &stop, || async {
        match leased_rebuild(&app).await {
            Ok(Some(Rebuilt { changed, removed, .. })) if changed + removed > 0 => {
                tracing::info!(changed, removed, "the catalogue was behind inventory's");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the catalogue could not be compared and will be another time"),
        }
    })
    .await;
}

/// None: another replica does it, or inventory knows no product at all, which is no reason to forget them all.
async fn leased_rebuild(app: &App) -> Result<Option<Rebuilt>, RebuildError> {
    let pool = &app.participant.pools.work;
    let mut conn = pool.acquire().await?;
    let ttl = app.config.catalogue_rebuild_every;
    let held = lease::hold(&mut conn, "catalogue", &app.participant.holder, ttl).await?;
    drop(conn);
    if !held {
        return Ok(None);
    }
    let snapshot = Snapshot::take(app, pool).await?;
    if snapshot.products.is_empty() { Ok(None) } else { snapshot.take_over(pool).await.map(Some) }
}

/// Takes a snapshot from inventory, and makes the view equal to it, or newer.
pub(crate) async fn rebuild(app: &App) -> Result<Rebuilt, RebuildError> {
    let pool = &app.participant.pools.http;
    Snapshot::take(app, pool).await?.take_over(pool).await
}

/// Inventory's products, read before any transaction begins: none is open across the network.
struct Snapshot {
    begun: OffsetDateTime,
    products: Vec<Product>,
}

impl Snapshot {
    async fn take(app: &App, pool: &PgPool) -> Result<Self, RebuildError> {
        let begun = store::now(pool).await?;
        Ok(Snapshot { begun, products: products_of_inventory(app).await? })
    }

    async fn take_over(&self, pool: &PgPool) -> Result<Rebuilt, RebuildError> {
        let mut transaction = pool.begin().await?;
        let rebuilt = replace(&mut transaction, &self.products, self.begun).await?;
        transaction.commit().await?;
        Ok(rebuilt)
    }
}

async fn replace(conn: &mut PgConnection, products: &[Product], begun: OffsetDateTime) -> Result<Rebuilt, sqlx::Error> {
    let skus: Vec<String> = products.iter().map(|p| p.sku.to_string()).collect();
    let removed = store::delete_products_not_in(conn, &skus, begun).await?;
    let changed = store::upsert_products(conn, products, true).await?;
    Ok(Rebuilt { products: products.len(), changed, removed })
}

/// The part of inventory's product list that the view needs.
#[derive(Debug, Deserialize)]
struct Listed {
    items: Vec<ListedProduct>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ListedProduct {
    sku: Sku,
    name: String,
    category: Option<String>,
    price: Money,
    status: ProductStatus,
    version: i64,
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
        products.extend(page.items.into_iter().map(|p| Product {
            sku: p.sku,
            name: p.name,
            category: p.category,
            price: p.price,
            status: p.status,
            version: p.version,
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(products);
        }
    }
}
