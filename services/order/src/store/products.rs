//! Order's own view of the catalogue. A row is replaced only by one of a higher version.

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use utoipa::ToSchema;

use contracts::{
    Money, Sku,
    catalogue::{Product, ProductStatus},
};

use super::unreadable;

/// A product in order's view, which is eventually consistent with inventory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProductBody)]
pub(crate) struct ViewedProduct {
    #[serde(flatten)]
    pub(crate) product: Product,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) updated_at: OffsetDateTime,
}

/// The same, as columns.
struct Columns {
    sku: String,
    name: String,
    category: Option<String>,
    price: i64,
    currency: String,
    status: String,
    version: i64,
    updated_at: OffsetDateTime,
}

impl TryFrom<Columns> for ViewedProduct {
    type Error = sqlx::Error;

    fn try_from(row: Columns) -> Result<Self, sqlx::Error> {
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
        Ok(ViewedProduct { product, updated_at: row.updated_at })
    }
}

/// Writes the products, in the order of their SKUs; returns the number of changed rows. `repair`: also replaces rows of the same
/// version that differ.
pub(crate) async fn upsert_products(
    conn: &mut PgConnection,
    products: &[Product],
    repair: bool,
) -> Result<u64, sqlx::Error> {
    let mut newest: Vec<&Product> = products.iter().collect();
    newest.sort_by(|a, b| a.sku.cmp(&b.sku).then(b.version.cmp(&a.version)));
    newest.dedup_by(|a, b| a.sku == b.sku);
    let done = sqlx::query!(
        "insert into product_view as v (sku, name, category, price, currency, status, version)
        select sku, name, category, price, currency, status, version
        from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
            as t (sku, name, category, price, currency, status, version)
        where not exists (
            -- Nobody has to wait for the lock of a row that stays as it is.
            select from product_view o
            where o.sku = t.sku
                and (o.version > t.version
                    or (o.version = t.version
                        and (not $8
                            or (o.name, o.category, o.price, o.currency, o.status)
                                is not distinct from (t.name, t.category, t.price, t.currency, t.status))))
        )
        on conflict (sku) do update
        set name = excluded.name, category = excluded.category, price = excluded.price,
            currency = excluded.currency, status = excluded.status, version = excluded.version, updated_at = now()
        where excluded.version > v.version
            or ($8 and excluded.version = v.version
                and (excluded.name, excluded.category, excluded.price, excluded.currency, excluded.status)
                    is distinct from (v.name, v.category, v.price, v.currency, v.status))",
        &newest.iter().map(|p| p.sku.to_string()).collect::<Vec<_>>(),
        &newest.iter().map(|p| p.name.clone()).collect::<Vec<_>>(),
        &newest.iter().map(|p| p.category.clone()).collect::<Vec<_>>() as &[Option<String>],
        &newest.iter().map(|p| p.price.amount).collect::<Vec<_>>(),
        &newest.iter().map(|p| p.price.currency.to_string()).collect::<Vec<_>>(),
        &newest.iter().map(|p| p.status.as_str().to_owned()).collect::<Vec<_>>(),
        &newest.iter().map(|p| p.version).collect::<Vec<_>>(),
        repair,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// The database's clock.
pub(crate) async fn now(pool: &PgPool) -> Result<OffsetDateTime, sqlx::Error> {
    sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#).fetch_one(pool).await
}

/// Deletes the products that a snapshot does not have, except those updated after the snapshot was begun.
pub(crate) async fn delete_products_not_in(
    conn: &mut PgConnection,
    skus: &[String],
    snapshot_begun: OffsetDateTime,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "delete from product_view
        where sku <> all($1) and updated_at < $2",
        skus,
        snapshot_begun,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

pub(crate) async fn products_of(conn: &mut PgConnection, skus: &[String]) -> Result<Vec<ViewedProduct>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Columns,
        "select sku, name, category, price, currency, status, version, updated_at
        from product_view
        where sku = any($1)",
        skus,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(ViewedProduct::try_from).collect()
}

pub(crate) async fn get_product(conn: &mut PgConnection, sku: &str) -> Result<Option<ViewedProduct>, sqlx::Error> {
    Ok(products_of(conn, &[sku.to_owned()]).await?.pop())
}

/// In the order of their SKUs, those after `after`.
pub(crate) async fn list_products(
    conn: &mut PgConnection,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<ViewedProduct>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Columns,
        "select sku, name, category, price, currency, status, version, updated_at
        from product_view
        where $1::text is null or sku > $1
        order by sku
        limit $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(ViewedProduct::try_from).collect()
}
