//! Reservations and their stock: the SQL of `reserve_stock` and `release_stock`.

use std::collections::{BTreeMap, HashMap, HashSet};

use contracts::{OrderId, SagaId, Sku, order_fulfillment::StockLine};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{all_written, products::ProductRow, unreadable};
use crate::domain::{Reservation, ReservationStatus, StockedProduct};

/// Inserts the reservations of these orders (each with its saga), RESERVED until they are refused,
/// and returns the inserted ones: an order that has a reservation or a tombstone is left unchanged.
pub(crate) async fn begin_reservations(
    conn: &mut PgConnection,
    orders: &[(OrderId, SagaId)],
) -> Result<HashSet<OrderId>, sqlx::Error> {
    insert_reservations(conn, orders, ReservationStatus::Reserved, Reservation::DECIDED).await
}

/// Inserts a tombstone for each order that has no reservation yet.
pub(crate) async fn insert_tombstones(
    conn: &mut PgConnection,
    orders: &[(OrderId, SagaId)],
) -> Result<(), sqlx::Error> {
    insert_reservations(conn, orders, ReservationStatus::Tombstone, Reservation::UNPUBLISHED).await?;
    Ok(())
}

async fn insert_reservations(
    conn: &mut PgConnection,
    orders: &[(OrderId, SagaId)],
    status: ReservationStatus,
    version: i64,
) -> Result<HashSet<OrderId>, sqlx::Error> {
    // Sorted, so two transactions with the same orders cannot deadlock.
    let mut sorted = orders.to_vec();
    sorted.sort_unstable();
    let inserted = sqlx::query_scalar!(
        "insert into reservation (order_id, saga_id, status, version)
        select order_id, saga_id, $3, $4
        from unnest($1::uuid[], $2::uuid[]) as t (order_id, saga_id)
        on conflict do nothing
        returning order_id",
        &sorted.iter().map(|(order_id, _)| order_id.0).collect::<Vec<_>>(),
        &sorted.iter().map(|(_, saga_id)| saga_id.0).collect::<Vec<_>>(),
        status.as_str(),
        version,
    )
    .fetch_all(conn)
    .await?;
    Ok(inserted.into_iter().map(OrderId).collect())
}

/// Sets reservations of this transaction to REFUSED, each with its reason.
pub(crate) async fn refuse_reservations(
    conn: &mut PgConnection,
    refused: &[(Uuid, String)],
) -> Result<(), sqlx::Error> {
    if refused.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "update reservation r
        set status = 'REFUSED', reason = t.reason
        from unnest($1::uuid[], $2::text[]) as t (order_id, reason)
        where r.order_id = t.order_id and r.status = 'RESERVED'",
        &refused.iter().map(|(order_id, _)| *order_id).collect::<Vec<_>>(),
        &refused.iter().map(|(_, reason)| reason.clone()).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    all_written(done.rows_affected(), refused.len())
}

/// Inserts the lines that the orders hold.
pub(crate) async fn insert_lines(conn: &mut PgConnection, lines: &[(Uuid, StockLine)]) -> Result<(), sqlx::Error> {
    if lines.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into reservation_line (order_id, sku, quantity)
        select order_id, sku, quantity
        from unnest($1::uuid[], $2::text[], $3::bigint[]) as t (order_id, sku, quantity)",
        &lines.iter().map(|(order_id, _)| *order_id).collect::<Vec<_>>(),
        &lines.iter().map(|(_, line)| line.sku.to_string()).collect::<Vec<_>>(),
        &lines.iter().map(|(_, line)| line.quantity).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Locks the reservations, in the order of their ids, and reads the lines that they hold. Lines need no lock
/// of their own: they are changed only under the lock of their reservation.
pub(crate) async fn lock_reservations(
    conn: &mut PgConnection,
    order_ids: &[Uuid],
) -> Result<HashMap<Uuid, Reservation>, sqlx::Error> {
    let rows = sqlx::query!(
        "select order_id, saga_id, status, version
        from reservation
        where order_id = any($1)
        order by order_id
        for update",
        order_ids,
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut reservations = HashMap::with_capacity(rows.len());
    for row in rows {
        let status = ReservationStatus::parse(&row.status).ok_or_else(|| unreadable("status", &row.status))?;
        let (order_id, saga_id, version) = (row.order_id, row.saga_id, row.version);
        let reservation = Reservation { order_id, saga_id, status, version, held: Vec::new() };
        reservations.insert(row.order_id, reservation);
    }
    let lines = sqlx::query!(
        "select order_id, sku, quantity
        from reservation_line
        where order_id = any($1) and status = 'RESERVED'
        order by order_id, sku",
        order_ids,
    )
    .fetch_all(conn)
    .await?;
    for line in lines {
        let sku = Sku::try_from(line.sku).map_err(|error| sqlx::Error::Decode(error.into()))?;
        if let Some(reservation) = reservations.get_mut(&line.order_id) {
            reservation.held.push(StockLine { sku, quantity: line.quantity });
        }
    }
    Ok(reservations)
}

/// Sets these held lines to RELEASED.
pub(crate) async fn release_lines(conn: &mut PgConnection, lines: &[(Uuid, StockLine)]) -> Result<(), sqlx::Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "update reservation_line l
        set status = 'RELEASED'
        from unnest($1::uuid[], $2::text[], $3::bigint[]) as t (order_id, sku, quantity)
        where l.order_id = t.order_id and l.sku = t.sku and l.quantity = t.quantity and l.status = 'RESERVED'",
        &lines.iter().map(|(order_id, _)| *order_id).collect::<Vec<_>>(),
        &lines.iter().map(|(_, line)| line.sku.to_string()).collect::<Vec<_>>(),
        &lines.iter().map(|(_, line)| line.quantity).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    all_written(done.rows_affected(), lines.len())
}

/// Writes status and version of locked reservations.
pub(crate) async fn save_reservations(
    conn: &mut PgConnection,
    reservations: impl ExactSizeIterator<Item = &Reservation>,
) -> Result<(), sqlx::Error> {
    let reservations: Vec<&Reservation> = reservations.collect();
    let done = sqlx::query!(
        "update reservation r
        set status = t.status, version = t.version, updated_at = now()
        from unnest($1::uuid[], $2::text[], $3::bigint[]) as t (order_id, status, version)
        where r.order_id = t.order_id and r.version < t.version",
        &reservations.iter().map(|r| r.order_id).collect::<Vec<_>>(),
        &reservations.iter().map(|r| r.status.as_str().to_owned()).collect::<Vec<_>>(),
        &reservations.iter().map(|r| r.version).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    all_written(done.rows_affected(), reservations.len())
}

/// The reservation of an order. A tombstone and a refusal have no lines.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReservationBody)]
pub(crate) struct ReservationRow {
    order_id: OrderId,
    pub(crate) saga_id: SagaId,
    pub(crate) status: ReservationStatus,
    /// Why the order was refused; null when it was not.
    #[schema(required = true)]
    pub(crate) reason: Option<String>,
    /// In the order of their SKUs.
    lines: Vec<ReservationLineRow>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// A quantity of one SKU; several lines of an order for the same SKU are summed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReservationLineBody)]
pub(crate) struct ReservationLineRow {
    #[schema(example = "LAPTOP-15")]
    sku: String,
    #[schema(minimum = 1)]
    quantity: i64,
    /// `RESERVED` or `RELEASED`.
    #[schema(example = "RESERVED")]
    status: String,
}

/// A reservation with its lines, read by one statement, so they are consistent.
pub(crate) async fn find_reservation(
    conn: &mut PgConnection,
    order_id: Uuid,
) -> Result<Option<ReservationRow>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select r.order_id, r.saga_id, r.status, r.reason, r.created_at, r.updated_at,
            l.sku as "sku?", l.quantity as "quantity?", l.status as "line_status?"
        from reservation r
        left join reservation_line l on l.order_id = r.order_id
        where r.order_id = $1
        order by l.sku"#,
        order_id,
    )
    .fetch_all(conn)
    .await?;
    let mut found: Option<ReservationRow> = None;
    for row in rows {
        let status = ReservationStatus::parse(&row.status).ok_or_else(|| unreadable("status", &row.status))?;
        let reservation = found.get_or_insert_with(|| ReservationRow {
            order_id: OrderId(row.order_id),
            saga_id: SagaId(row.saga_id),
            status,
            reason: row.reason,
            created_at: row.created_at,
            updated_at: row.updated_at,
            lines: Vec::new(),
        });
        if let (Some(sku), Some(quantity), Some(status)) = (row.sku, row.quantity, row.line_status) {
            reservation.lines.push(ReservationLineRow { sku, quantity, status });
        }
    }
    Ok(found)
}

/// Locks the products, in the order of their SKUs. Unknown ones are skipped.
pub(crate) async fn lock_products(
    conn: &mut PgConnection,
    skus: impl IntoIterator<Item = &Sku>,
) -> Result<Vec<StockedProduct>, sqlx::Error> {
    let skus: Vec<String> = skus.into_iter().map(Sku::to_string).collect();
    if skus.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query_as!(
        ProductRow,
        "select sku, name, category, price, currency, available, reserved, supplied, status, version, updated_at
        from product
        where sku = any($1)
        order by sku
        for update",
        &skus,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(StockedProduct::try_from).collect()
}

/// Moves available units of locked products to reserved.
pub(crate) async fn reserve_units(conn: &mut PgConnection, units: &BTreeMap<Sku, i64>) -> Result<(), sqlx::Error> {
    move_units(conn, units, 1).await
}

/// Moves reserved units of locked products to available.
pub(crate) async fn release_units(conn: &mut PgConnection, units: &BTreeMap<Sku, i64>) -> Result<(), sqlx::Error> {
    move_units(conn, units, -1).await
}

async fn move_units(conn: &mut PgConnection, units: &BTreeMap<Sku, i64>, sign: i64) -> Result<(), sqlx::Error> {
    if units.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "update product p
        set available = p.available - t.quantity, reserved = p.reserved + t.quantity, updated_at = now()
        from unnest($1::text[], $2::bigint[]) as t (sku, quantity)
        where p.sku = t.sku and p.available >= t.quantity and p.reserved >= -t.quantity",
        &units.keys().map(Sku::to_string).collect::<Vec<_>>(),
        &units.values().map(|quantity| sign * quantity).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    all_written(done.rows_affected(), units.len())
}
