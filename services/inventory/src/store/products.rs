//! The catalogue and its supply.

use contracts::{
    Money, Sku,
    catalogue::{Product, ProductStatus},
};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{all_written, unreadable};
use crate::domain::{Stock, StockedProduct};

pub(super) struct ProductRow {
    pub(super) sku: String,
    pub(super) name: String,
    pub(super) category: Option<String>,
    pub(super) price: i64,
    pub(super) currency: String,
    pub(super) available: i64,
    pub(super) reserved: i64,
    pub(super) supplied: i64,
    pub(super) status: String,
    pub(super) version: i64,
    pub(super) updated_at: OffsetDateTime,
}

impl TryFrom<ProductRow> for StockedProduct {
    type Error = sqlx::Error;

    fn try_from(row: ProductRow) -> Result<Self, sqlx::Error> {
        let status = ProductStatus::parse(&row.status).ok_or_else(|| unreadable("status", &row.status))?;
        let currency = row.currency.parse().map_err(|_| unreadable("currency", &row.currency))?;
        let product = Product {
            status,
            sku: Sku::try_from(row.sku).map_err(|error| sqlx::Error::Decode(error.into()))?,
            name: row.name,
            category: row.category,
            price: Money::new(row.price, currency),
            version: row.version,
        };
        let stock = Stock { available: row.available, reserved: row.reserved, supplied: row.supplied };
        Ok(StockedProduct { product, stock, updated_at: row.updated_at })
    }
}

/// Inserts the product; none when its SKU exists.
pub(crate) async fn insert_product(
    conn: &mut PgConnection,
    product: &Product,
    quantity: i64,
) -> Result<Option<StockedProduct>, sqlx::Error> {
    let row = sqlx::query_as!(
        ProductRow,
        "insert into product (sku, name, category, price, currency, available, supplied, status, version)
        values ($1, $2, $3, $4, $5, $6, $6, $7, $8)
        on conflict do nothing
        returning sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at",
        product.sku.as_str(),
        product.name,
        product.category,
        product.price.amount,
        product.price.currency.as_str(),
        quantity,
        product.status.as_str(),
        product.version,
    )
    .fetch_optional(conn)
    .await?;
    row.map(StockedProduct::try_from).transpose()
}

pub(crate) async fn find_product(conn: &mut PgConnection, sku: &Sku) -> Result<Option<StockedProduct>, sqlx::Error> {
    let row = sqlx::query_as!(
        ProductRow,
        "select sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at
        from product
        where sku = $1",
        sku.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(StockedProduct::try_from).transpose()
}

/// In the order of their SKUs, those after `after`.
pub(crate) async fn list_products(
    conn: &mut PgConnection,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<StockedProduct>, sqlx::Error> {
    let rows = sqlx::query_as!(
        ProductRow,
        "select sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at
        from product
        where $1::text is null or sku > $1
        order by sku
        limit $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(StockedProduct::try_from).collect()
}

/// Locks ACTIVE products with fewer than `point` available units, of which at least `point` were supplied, and which
/// `quantity` more do not overflow.
pub(crate) async fn lock_products_below(
    conn: &mut PgConnection,
    point: i64,
    quantity: i64,
    limit: i64,
) -> Result<Vec<StockedProduct>, sqlx::Error> {
    let rows = sqlx::query_as!(
        ProductRow,
        "select sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at
        from product
        where status = 'ACTIVE' and available < $1 and supplied >= $1 and supplied <= $2
        order by sku
        limit $3
        for update",
        point,
        i64::MAX - quantity,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(StockedProduct::try_from).collect()
}

/// Writes name, price and status of a locked product at its next version.
pub(crate) async fn save_details(conn: &mut PgConnection, product: &Product) -> Result<StockedProduct, sqlx::Error> {
    sqlx::query_as!(
        ProductRow,
        "update product
        set name = $2, price = $3, currency = $4, status = $5, version = $6, updated_at = now()
        where sku = $1 and version + 1 = $6
        returning sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at",
        product.sku.as_str(),
        product.name,
        product.price.amount,
        product.price.currency.as_str(),
        product.status.as_str(),
        product.version,
    )
    .fetch_one(conn)
    .await?
    .try_into()
}

/// Writes the stock of locked products, each at its next version.
pub(crate) async fn save_supply(
    conn: &mut PgConnection,
    items: &[StockedProduct],
) -> Result<Vec<StockedProduct>, sqlx::Error> {
    let rows = sqlx::query_as!(
        ProductRow,
        "update product p
        set available = t.available, supplied = t.supplied, version = t.version, updated_at = now()
        from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) as t (sku, available, supplied, version)
        where p.sku = t.sku and p.version + 1 = t.version
        returning p.sku, p.name, p.category, p.price, p.currency, p.available, p.reserved, p.supplied, p.status,
            p.version, p.updated_at",
        &items.iter().map(|i| i.product.sku.to_string()).collect::<Vec<_>>(),
        &items.iter().map(|i| i.stock.available).collect::<Vec<_>>(),
        &items.iter().map(|i| i.stock.supplied).collect::<Vec<_>>(),
        &items.iter().map(|i| i.product.version).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    all_written(rows.len() as u64, items.len())?;
    rows.into_iter().map(StockedProduct::try_from).collect()
}
