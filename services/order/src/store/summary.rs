//! The summary of the orders of each customer, a materialized view.

use contracts::Money;
use messaging::sample::{Reading, Sampled};
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::unreadable;

pub(crate) const SAMPLED: &[Sampled] = &[Sampled::new(
    "customer_summary_age_seconds",
    "Time since the last refresh of the summary of orders per customer",
    &[],
)];

/// The orders of a customer, as of a time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CustomerSummaryBody)]
pub(crate) struct CustomerSummary {
    pub(crate) customer_id: String,
    pub(crate) orders: i64,
    pub(crate) confirmed: i64,
    pub(crate) cancelled: i64,
    /// The totals of the confirmed orders, one per currency.
    pub(crate) confirmed_amounts: Vec<Money>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    pub(crate) last_order_at: Option<OffsetDateTime>,
    /// What was committed before this time is counted.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) refreshed_at: OffsetDateTime,
}

/// The summary of a customer who was registered, or has ordered; otherwise none.
pub(crate) async fn summary_of(
    conn: &mut PgConnection,
    customer_id: &str,
) -> Result<Option<CustomerSummary>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select r.refreshed_at, s.currency as "currency?", s.orders as "orders?", s.confirmed as "confirmed?",
            s.cancelled as "cancelled?", s.confirmed_amount as "confirmed_amount?", s.last_order_at as "last_order_at?"
        from view_refresh r
        left join customer_summary s on s.customer_id = $1
        where r.view_name = 'customer_summary'
            and (s.customer_id is not null or exists (select from customer c where c.customer_id = $1))
        order by s.currency"#,
        customer_id,
    )
    .fetch_all(conn)
    .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let mut summary = CustomerSummary {
        customer_id: customer_id.to_owned(),
        orders: 0,
        confirmed: 0,
        cancelled: 0,
        confirmed_amounts: Vec::new(),
        last_order_at: None,
        refreshed_at: first.refreshed_at,
    };
    for row in rows {
        summary.orders += row.orders.unwrap_or_default();
        summary.confirmed += row.confirmed.unwrap_or_default();
        summary.cancelled += row.cancelled.unwrap_or_default();
        summary.last_order_at = summary.last_order_at.max(row.last_order_at);
        if let (Some(currency), Some(amount), Some(1..)) = (row.currency, row.confirmed_amount, row.confirmed) {
            let currency = currency.parse().map_err(|_| unreadable("currency", &currency))?;
            summary.confirmed_amounts.push(Money::new(amount, currency));
        }
    }
    Ok(Some(summary))
}

/// Reads all orders, in one statement that the statement timeout limits.
pub(crate) async fn refresh_summary(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("select refresh_customer_summary()").execute(conn).await?;
    Ok(())
}

pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"select 'customer_summary_age_seconds' as "name!", '{}'::text[] as "labels!",
            extract(epoch from now() - refreshed_at)::float8 as "value!"
        from view_refresh
        where view_name = 'customer_summary'"#
    )
    .fetch_all(pool)
    .await
}
