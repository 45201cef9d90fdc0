//! The customers.

use std::collections::HashMap;

use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::unreadable;
use crate::domain::CustomerStatus;

/// A customer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomerBody)]
pub(crate) struct Customer {
    pub(crate) customer_id: String,
    status: CustomerStatus,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// The time of its last change of status.
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

struct Columns {
    customer_id: String,
    status: String,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl TryFrom<Columns> for Customer {
    type Error = sqlx::Error;

    fn try_from(row: Columns) -> Result<Self, sqlx::Error> {
        let Columns { customer_id, status, created_at, updated_at } = row;
        Ok(Customer { customer_id, status: status_of(&status)?, created_at, updated_at })
    }
}

fn status_of(text: &str) -> Result<CustomerStatus, sqlx::Error> {
    CustomerStatus::parse(text).ok_or_else(|| unreadable("status", text))
}

/// Inserts an ACTIVE customer; none when there is one with this id.
pub(crate) async fn insert_customer(
    conn: &mut PgConnection,
    customer_id: &str,
) -> Result<Option<Customer>, sqlx::Error> {
    let row = sqlx::query_as!(
        Columns,
        "insert into customer (customer_id)
        values ($1)
        on conflict do nothing
        returning customer_id, status, created_at, updated_at",
        customer_id,
    )
    .fetch_optional(conn)
    .await?;
    row.map(Customer::try_from).transpose()
}

pub(crate) async fn find_customer(conn: &mut PgConnection, customer_id: &str) -> Result<Option<Customer>, sqlx::Error> {
    let row = sqlx::query_as!(
        Columns,
        "select customer_id, status, created_at, updated_at from customer where customer_id = $1",
        customer_id,
    )
    .fetch_optional(conn)
    .await?;
    row.map(Customer::try_from).transpose()
}

/// In the order of their ids, those after `after`.
pub(crate) async fn list_customers(
    conn: &mut PgConnection,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<Customer>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Columns,
        "select customer_id, status, created_at, updated_at
        from customer
        where $1::text is null or customer_id > $1
        order by customer_id
        limit $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Customer::try_from).collect()
}

/// Sets the status; none when there is no such customer. Waits for the orders of this customer that are being placed.
pub(crate) async fn set_customer_status(
    conn: &mut PgConnection,
    customer_id: &str,
    status: CustomerStatus,
) -> Result<Option<Customer>, sqlx::Error> {
    let row = sqlx::query_as!(
        Columns,
        "update customer
        set status = $2, updated_at = case when status = $2 then updated_at else now() end
        where customer_id = $1
        returning customer_id, status, created_at, updated_at",
        customer_id,
        status.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(Customer::try_from).transpose()
}

/// The status of these customers, which none of them loses before the end of the transaction. They are locked in the order of
/// their ids.
pub(crate) async fn lock_customers(
    conn: &mut PgConnection,
    customer_ids: &[&str],
) -> Result<HashMap<String, CustomerStatus>, sqlx::Error> {
    let rows = sqlx::query!(
        "select customer_id, status
        from customer
        where customer_id = any($1::text[])
        order by customer_id
        for share",
        customer_ids as &[&str],
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((row.customer_id, status_of(&row.status)?))).collect()
}
