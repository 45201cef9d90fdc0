//! Payment's side of the books, as the gateway's side will be compared with it.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use super::snapshot::Reach;

/// Payment's books at one moment.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) totals: Vec<CurrencyTotal>,
    /// The latest payments, newest first.
    pub(super) latest: Vec<Payment>,
    /// The orders whose sagas are at work: their payments may change at the gateway at any time.
    pub(super) in_flight: HashSet<Uuid>,
}

/// What payment believes the gateway did, in one currency; amounts in minor units.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct CurrencyTotal {
    pub(super) currency: String,
    /// Captured and not refunded.
    pub(super) kept: i64,
    /// How many charges went through, refunded ones included.
    pub(super) charges: i64,
    pub(super) refunds: i64,
}

/// One payment; its id is the idempotency key that the gateway knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, sqlx::FromRow)]
pub(super) struct Payment {
    pub(super) payment_id: Uuid,
    pub(super) order_id: Uuid,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) status: String,
    pub(super) gateway_reference: Option<String>,
}

pub(super) async fn read(connection: &mut PgConnection, reach: Reach) -> Result<Ledger, sqlx::Error> {
    let totals = sqlx::query_as(
        "select currency,
            coalesce(sum(amount) filter (where status = 'CAPTURED'), 0)::bigint as kept,
            count(*) filter (where status in ('CAPTURED', 'REFUNDED')) as charges,
            count(*) filter (where status = 'REFUNDED') as refunds
        from payment.payment
        group by currency
        order by currency",
    )
    .fetch_all(&mut *connection)
    .await?;
    let latest = sqlx::query_as(
        "select payment_id, order_id, amount, currency, status, gateway_reference
        from payment.payment
        order by payment_id desc
        limit $1",
    )
    .bind(reach.payments())
    .fetch_all(&mut *connection)
    .await?;
    let in_flight: Vec<Uuid> = sqlx::query_scalar(
        "select business_key
        from saga.saga_instance
        where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING')",
    )
    .fetch_all(connection)
    .await?;
    Ok(Ledger { totals, latest, in_flight: in_flight.into_iter().collect() })
}
