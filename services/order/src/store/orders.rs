//! Orders and their lines. Columns of type text are converted to domain types only here.

use std::collections::HashMap;

use contracts::{Currency, Money, OrderId, SagaId, Sku, order_fulfillment::CancelReason};
use serde::{Serialize, Serializer};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::unreadable;
use crate::{
    domain::{Cancellation, OrderStatus, PricedLine, Quantity},
    placement::Accepted,
};

/// Writes the orders with their lines, and returns the rows, in any order.
pub(crate) async fn insert_orders(
    conn: &mut PgConnection,
    orders: &[&Accepted<'_>],
) -> Result<Vec<OrderRow>, sqlx::Error> {
    let numbered =
        |o: &&Accepted<'_>| (1..).take(o.priced.lines.len()).map(|line| (o.order_id.0, line)).collect::<Vec<_>>();
    let (orders_of_lines, numbers): (Vec<Uuid>, Vec<i16>) = orders.iter().flat_map(numbered).unzip();
    let lines: Vec<&PricedLine> = orders.iter().flat_map(|o| &o.priced.lines).collect();
    let rows = sqlx::query_as!(
        Columns,
        "with lines as (
            insert into order_line (order_id, line, sku, name, quantity, unit_price)
            select order_id, line, sku, name, quantity, unit_price
            from unnest($8::uuid[], $9::smallint[], $10::text[], $11::text[], $12::bigint[], $13::bigint[])
                as t (order_id, line, sku, name, quantity, unit_price)
        )
        insert into customer_order
            (order_id, customer_id, total_amount, currency, payment_method, shipping_address, saga_id)
        select order_id, customer_id, total_amount, currency, payment_method, shipping_address, saga_id
        from unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::json[], $7::uuid[])
            as t (order_id, customer_id, total_amount, currency, payment_method, shipping_address, saga_id)
        returning order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, cancel_code, version, created_at, updated_at",
        &orders.iter().map(|o| o.order_id.0).collect::<Vec<_>>(),
        &orders.iter().map(|o| o.placement.customer_id.clone()).collect::<Vec<_>>(),
        &orders.iter().map(|o| o.priced.total.amount).collect::<Vec<_>>(),
        &orders.iter().map(|o| o.priced.total.currency.to_string()).collect::<Vec<_>>(),
        &orders.iter().map(|o| o.placement.payment_method.clone()).collect::<Vec<_>>(),
        &orders.iter().map(|o| o.placement.shipping_address.clone()).collect::<Vec<_>>() as &[Option<Value>],
        &orders.iter().map(|o| o.saga_id.0).collect::<Vec<_>>(),
        &orders_of_lines,
        &numbers,
        &lines.iter().map(|l| l.sku.to_string()).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.name.clone()).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.quantity.units()).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.unit_price.amount).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(OrderRow::try_from).collect()
}

/// An order's row, which is also its JSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OrderRow {
    #[schema(value_type = Uuid)]
    pub(crate) order_id: OrderId,
    pub(crate) customer_id: String,
    pub(crate) status: OrderStatus,
    pub(crate) total: Money,
    pub(crate) payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) shipping_address: Option<Value>,
    #[schema(value_type = Uuid)]
    pub(crate) saga_id: SagaId,
    /// Why it was cancelled; null unless it is.
    #[serde(rename = "cancel_reason", serialize_with = "detail")]
    #[schema(value_type = String, nullable, required = true)]
    pub(crate) cancellation: Option<Cancellation>,
    #[serde(skip)]
    pub(crate) version: i64,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) updated_at: OffsetDateTime,
}

fn detail<S: Serializer>(cancellation: &Option<Cancellation>, serializer: S) -> Result<S::Ok, S::Error> {
    cancellation.as_ref().map(|cancellation| &cancellation.detail).serialize(serializer)
}

/// An ended order, and the reason if it was cancelled.
pub(crate) type EndedOrder = (OrderId, Option<Cancellation>);

impl OrderRow {
    /// Sets the end of the order; the caller writes it with [`end_orders`].
    pub(crate) fn end(&mut self, status: OrderStatus, cancellation: Option<Cancellation>) -> EndedOrder {
        self.status = status;
        (self.order_id, cancellation)
    }
}

/// The same, as columns.
struct Columns {
    order_id: Uuid,
    customer_id: String,
    status: String,
    total_amount: i64,
    currency: String,
    payment_method: String,
    shipping_address: Option<Value>,
    saga_id: Uuid,
    cancel_reason: Option<String>,
    cancel_code: Option<String>,
    version: i64,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl TryFrom<Columns> for OrderRow {
    type Error = sqlx::Error;

    fn try_from(row: Columns) -> Result<Self, sqlx::Error> {
        let currency = row.currency.parse().map_err(|_| unreadable("currency", &row.currency))?;
        let reason = |code: String| {
            REASONS.into_iter().find(|r| code_of(*r) == code).ok_or_else(|| unreadable("cancel_code", &code))
        };
        let reason = row.cancel_code.map(reason).transpose()?;
        Ok(OrderRow {
            order_id: OrderId(row.order_id),
            customer_id: row.customer_id,
            status: OrderStatus::parse(&row.status).ok_or_else(|| unreadable("status", &row.status))?,
            total: Money::new(row.total_amount, currency),
            payment_method: row.payment_method,
            shipping_address: row.shipping_address,
            saga_id: SagaId(row.saga_id),
            cancellation: row.cancel_reason.map(|detail| Cancellation { reason, detail }),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

const REASONS: [CancelReason; 4] =
    [CancelReason::OutOfStock, CancelReason::PaymentRefused, CancelReason::TimedOut, CancelReason::CustomerRequest];

const fn code_of(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::OutOfStock => "OUT_OF_STOCK",
        CancelReason::PaymentRefused => "PAYMENT_REFUSED",
        CancelReason::TimedOut => "TIMED_OUT",
        CancelReason::CustomerRequest => "CUSTOMER_REQUEST",
    }
}

/// Locks the orders, in the order of their ids.
pub(crate) async fn lock_orders(
    conn: &mut PgConnection,
    order_ids: impl IntoIterator<Item = OrderId>,
) -> Result<HashMap<OrderId, OrderRow>, sqlx::Error> {
    let order_ids: Vec<Uuid> = order_ids.into_iter().map(|id| id.0).collect();
    let rows = sqlx::query_as!(
        Columns,
        "select order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, cancel_code, version, created_at, updated_at
        from customer_order
        where order_id = any($1)
        order by order_id
        for update",
        &order_ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((OrderId(row.order_id), row.try_into()?))).collect()
}

/// Writes the ends of these locked orders.
pub(crate) async fn end_orders(
    conn: &mut PgConnection,
    status: OrderStatus,
    orders: &[EndedOrder],
) -> Result<(), sqlx::Error> {
    if orders.is_empty() {
        return Ok(());
    }
    let columns = orders.iter().map(|(_, cancellation)| {
        let code = cancellation.as_ref().and_then(|c| c.reason).map(|reason| code_of(reason).to_owned());
        (cancellation.as_ref().map(|c| c.detail.clone()), code)
    });
    let (details, codes): (Vec<_>, Vec<_>) = columns.unzip();
    let done = sqlx::query!(
        "update customer_order o
        set status = $1, cancel_reason = t.reason, cancel_code = t.code, version = version + 1, updated_at = now()
        from unnest($2::uuid[], $3::text[], $4::text[]) as t (order_id, reason, code)
        where o.order_id = t.order_id and o.status <> 'CANCELLED'",
        status.as_str(),
        &orders.iter().map(|(order_id, _)| order_id.0).collect::<Vec<_>>(),
        &details as &[Option<String>],
        &codes as &[Option<String>],
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == orders.len() as u64 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

pub(crate) async fn get_order(conn: &mut PgConnection, order_id: Uuid) -> Result<Option<OrderRow>, sqlx::Error> {
    Ok(list_orders(conn, &[order_id]).await?.pop())
}

/// The saga of an order; it never changes, so it is read without a lock.
pub(crate) async fn saga_of(conn: &mut PgConnection, order_id: Uuid) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!("select saga_id from customer_order where order_id = $1", order_id).fetch_optional(conn).await
}

/// Whether the order's saga has ended. A cancelled order's saga ends when all its steps are undone.
pub(crate) async fn has_ended(conn: &mut PgConnection, order_id: Uuid) -> Result<bool, sqlx::Error> {
    let ended = sqlx::query_scalar!(
        r#"select s.status in ('COMPLETED', 'COMPENSATED', 'FAILED') as "ended!"
        from customer_order o
        join saga.saga_instance s on s.saga_id = o.saga_id
        where o.order_id = $1"#,
        order_id,
    )
    .fetch_optional(conn)
    .await?;
    // A purged saga has ended.
    Ok(ended.unwrap_or(true))
}

/// The orders before `before`, newest first, of one customer or all, and whether they have the status. There is no index on the
/// status, because every change would update it; so at most `limit` orders are read.
pub(crate) async fn walk_orders(
    conn: &mut PgConnection,
    customer_id: Option<&str>,
    status: Option<OrderStatus>,
    before: Uuid,
    limit: i64,
) -> Result<Vec<(Uuid, bool)>, sqlx::Error> {
    let status = status.map(OrderStatus::as_str);
    if let Some(customer_id) = customer_id {
        let rows = sqlx::query!(
            r#"select order_id, $1::text is null or status = $1 as "wanted!"
            from customer_order
            where customer_id = $2 and order_id < $3
            order by order_id desc
            limit $4"#,
            status,
            customer_id,
            before,
            limit,
        );
        return Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.order_id, row.wanted)).collect());
    }
    let rows = sqlx::query!(
        r#"select order_id, $1::text is null or status = $1 as "wanted!"
        from customer_order
        where order_id < $2
        order by order_id desc
        limit $3"#,
        status,
        before,
        limit,
    );
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.order_id, row.wanted)).collect())
}

/// The orders, newest first.
pub(crate) async fn list_orders(conn: &mut PgConnection, order_ids: &[Uuid]) -> Result<Vec<OrderRow>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Columns,
        "select order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, cancel_code, version, created_at, updated_at
        from customer_order
        where order_id = any($1)
        order by order_id desc",
        order_ids,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(OrderRow::try_from).collect()
}

/// The lines of these orders.
pub(crate) async fn lines_of(
    conn: &mut PgConnection,
    orders: &[OrderRow],
) -> Result<HashMap<OrderId, Vec<PricedLine>>, sqlx::Error> {
    let currencies: HashMap<Uuid, Currency> = orders.iter().map(|o| (o.order_id.0, o.total.currency)).collect();
    let rows = sqlx::query!(
        "select order_id, sku, name, quantity, unit_price
        from order_line
        where order_id = any($1)
        order by order_id, line",
        &orders.iter().map(|o| o.order_id.0).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    let mut lines: HashMap<OrderId, Vec<PricedLine>> = HashMap::with_capacity(orders.len());
    for row in rows {
        let quantity = Quantity::new(row.quantity).ok_or_else(|| unreadable("quantity", row.quantity))?;
        let currency = currencies.get(&row.order_id).copied().ok_or_else(|| unreadable("order_id", row.order_id))?;
        let sku = Sku::try_from(row.sku).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let line = PricedLine { sku, name: row.name, quantity, unit_price: Money::new(row.unit_price, currency) };
        lines.entry(OrderId(row.order_id)).or_default().push(line);
    }
    Ok(lines)
}
