//! Payment's ledger, to be compared with the gateway's.

use sqlx::PgConnection;
use uuid::Uuid;

use super::options::Reach;

/// Payment's totals in one currency; amounts in minor units.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct CurrencyTotal {
    pub(super) currency: String,
    /// Captured and not refunded.
    pub(super) kept: i64,
    /// Successful charges, refunded ones included.
    pub(super) charges: i64,
    pub(super) refunds: i64,
}

/// One payment; its id is the idempotency key at the gateway.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Payment {
    pub(super) payment_id: Uuid,
    pub(super) order_id: Uuid,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) status: String,
    pub(super) gateway_reference: Option<String>,
}

pub(super) async fn totals(connection: &mut PgConnection, without: &[Uuid]) -> sqlx::Result<Vec<CurrencyTotal>> {
    let query = sqlx::query_as(
        "select currency,
            coalesce(sum(amount) filter (where status = 'CAPTURED'), 0)::bigint as kept,
            count(*) filter (where status in ('CAPTURED', 'REFUNDED')) as charges,
            count(*) filter (where status = 'REFUNDED') as refunds
        from payment.payment
        where payment_id not in (select unnest($1::uuid[]))
        group by currency
        order by currency",
    );
    query.bind(without).fetch_all(connection).await
}

/// The latest payments, newest first, without those of the orders in flight.
pub(super) async fn latest(
    connection: &mut PgConnection,
    in_flight: &[Uuid],
    reach: Reach,
) -> sqlx::Result<Vec<Payment>> {
    let query = sqlx::query_as(
        "select payment_id, order_id, amount, currency, status, gateway_reference
        from payment.payment
        where order_id not in (select unnest($1::uuid[]))
        order by payment_id desc
        limit $2",
    );
    query.bind(in_flight).bind(reach.payments()).fetch_all(connection).await
}

pub(super) async fn payments_of(connection: &mut PgConnection, orders: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar("select payment_id from payment.payment where order_id = any($1)")
        .bind(orders)
        .fetch_all(connection)
        .await
}
