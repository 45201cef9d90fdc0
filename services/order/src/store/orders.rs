//! Orders, their lines, and the idempotency keys under which they were placed.

use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::{OrderStatus, Priced};

/// An order that was accepted just now.
#[derive(Debug)]
pub(crate) struct AcceptedOrder<'a> {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) customer_id: &'a str,
    pub(crate) payment_method: &'a str,
    pub(crate) shipping_address: Option<&'a Value>,
    pub(crate) priced: &'a Priced,
}

/// Writes the order with its lines, and returns it as it is now.
pub(crate) async fn insert_order(conn: &mut PgConnection, order: &AcceptedOrder<'_>) -> Result<OrderRow, sqlx::Error> {
    let lines = &order.priced.lines;
    let numbers: Vec<i16> = (1..).take(lines.len()).collect();
    sqlx::query_as!(
        OrderRow,
        "with lines as (
            insert into order_line (order_id, line, sku, name, quantity, unit_price)
            select $1, line, sku, name, quantity, unit_price
            from unnest($8::smallint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[])
                as t (line, sku, name, quantity, unit_price)
        )
        insert into customer_order
            (order_id, customer_id, total_amount, currency, payment_method, shipping_address, saga_id)
        values ($1, $2, $3, $4, $5, $6, $7)
        returning order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, version, created_at, updated_at",
        order.order_id,
        order.customer_id,
        order.priced.total.amount,
        order.priced.total.currency.as_str(),
        order.payment_method,
        order.shipping_address,
        order.saga_id,
        &numbers,
        &lines.iter().map(|l| l.sku.as_str().to_owned()).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.name.clone()).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.quantity).collect::<Vec<_>>(),
        &lines.iter().map(|l| l.unit_price.amount).collect::<Vec<_>>(),
    )
    .fetch_one(conn)
    .await
}

/// An order as its table has it.
#[derive(Debug, Clone)]
pub(crate) struct OrderRow {
    pub(crate) order_id: Uuid,
    pub(crate) customer_id: String,
    pub(crate) status: String,
    pub(crate) total_amount: i64,
    pub(crate) currency: String,
    pub(crate) payment_method: String,
    pub(crate) shipping_address: Option<Value>,
    pub(crate) saga_id: Uuid,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) version: i64,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) updated_at: OffsetDateTime,
}

/// Locks the orders, in the order of their ids.
pub(crate) async fn lock_orders(conn: &mut PgConnection, order_ids: &[Uuid]) -> Result<Vec<OrderRow>, sqlx::Error> {
    sqlx::query_as!(
        OrderRow,
        "select order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, version, created_at, updated_at
        from customer_order
        where order_id = any($1)
        order by order_id
        for update",
        order_ids,
    )
    .fetch_all(conn)
    .await
}

/// Ends the orders, which the caller has locked; a cancellation has a reason, a confirmation none.
pub(crate) async fn end_orders(
    conn: &mut PgConnection,
    order_ids: &[Uuid],
    status: OrderStatus,
    reason: Option<&str>,
) -> Result<(), sqlx::Error> {
    let done = sqlx::query!(
        "update customer_order
        set status = $2, cancel_reason = $3, version = version + 1, updated_at = now()
        where order_id = any($1) and status <> 'CANCELLED'",
        order_ids,
        status.as_str(),
        reason,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == order_ids.len() as u64 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

pub(crate) async fn get_order(conn: &mut PgConnection, order_id: Uuid) -> Result<Option<OrderRow>, sqlx::Error> {
    sqlx::query_as!(
        OrderRow,
        "select order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, version, created_at, updated_at
        from customer_order
        where order_id = $1",
        order_id,
    )
    .fetch_optional(conn)
    .await
}

/// The saga of an order; it never changes, so it can be read before anything is locked.
pub(crate) async fn saga_of(conn: &mut PgConnection, order_id: Uuid) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!("select saga_id from customer_order where order_id = $1", order_id).fetch_optional(conn).await
}

/// Whether the order's saga has come to an end. A cancelled order's saga
/// ends only when everything is undone.
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
    // A saga that is not kept any more ended long ago.
    Ok(ended.unwrap_or(true))
}

/// Newest first, of one status and customer or all, those before `before`.
pub(crate) async fn list_orders(
    conn: &mut PgConnection,
    status: Option<&str>,
    customer_id: Option<&str>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<OrderRow>, sqlx::Error> {
    sqlx::query_as!(
        OrderRow,
        "select order_id, customer_id, status, total_amount, currency, payment_method, shipping_address, saga_id,
            cancel_reason, version, created_at, updated_at
        from customer_order
        where ($1::text is null or status = $1)
            and ($2::text is null or customer_id = $2)
            and ($3::uuid is null or order_id < $3)
        order by order_id desc
        limit $4",
        status,
        customer_id,
        before,
        limit,
    )
    .fetch_all(conn)
    .await
}

#[derive(Debug, Clone)]
pub(crate) struct OrderLineRow {
    pub(crate) order_id: Uuid,
    pub(crate) sku: String,
    pub(crate) name: String,
    pub(crate) quantity: i64,
    pub(crate) unit_price: i64,
}

pub(crate) async fn lines_of(conn: &mut PgConnection, order_ids: &[Uuid]) -> Result<Vec<OrderLineRow>, sqlx::Error> {
    sqlx::query_as!(
        OrderLineRow,
        "select order_id, sku, name, quantity, unit_price
        from order_line
        where order_id = any($1)
        order by order_id, line",
        order_ids,
    )
    .fetch_all(conn)
    .await
}

/// What a key stands for.
#[derive(Debug)]
pub(crate) struct StoredKey {
    pub(crate) order_id: Uuid,
    pub(crate) fingerprint: Vec<u8>,
}

/// A key a request came with, and the fingerprint of its body.
#[derive(Debug)]
pub(crate) struct KeyUse<'a> {
    pub(crate) customer_id: &'a str,
    pub(crate) key: &'a str,
    pub(crate) fingerprint: &'a [u8],
}

/// Holds the key for the rest of the transaction; false when another request holds it just now.
pub(crate) async fn try_key(conn: &mut PgConnection, key: &KeyUse<'_>) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select pg_try_advisory_xact_lock(hashtextextended($1 || chr(31) || $2, 0)) as "held!""#,
        key.customer_id,
        key.key,
    )
    .fetch_one(conn)
    .await
}

pub(crate) async fn find_key(conn: &mut PgConnection, key: &KeyUse<'_>) -> Result<Option<StoredKey>, sqlx::Error> {
    sqlx::query_as!(
        StoredKey,
        "select order_id, fingerprint
        from idempotency_key
        where customer_id = $1 and key = $2",
        key.customer_id,
        key.key,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) async fn insert_key(conn: &mut PgConnection, key: &KeyUse<'_>, order_id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into idempotency_key (customer_id, key, fingerprint, order_id)
        values ($1, $2, $3, $4)",
        key.customer_id,
        key.key,
        key.fingerprint,
        order_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes a batch of keys older than `retention`; returns how many.
pub(crate) async fn delete_old_keys(
    conn: &mut PgConnection,
    retention: std::time::Duration,
    batch: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "delete from idempotency_key
        where (customer_id, key) in (
            select customer_id, key from idempotency_key where created_at < now() - $1::interval limit $2
        )",
        messaging::lease::interval(retention),
        batch,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
