//! Gauges from payment's tables: the money that is still to be refunded.

use messaging::sample::{Reading, Sampled};
use saga_store::sample::OLDEST_COMPENSATION_DEBT;
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled::new(
        "compensation_debt_money_minor_units",
        "Amount captured for orders whose saga is being compensated, and not refunded yet",
        &["currency"],
    ),
    OLDEST_COMPENSATION_DEBT,
];

/// Starts from the few sagas that are being compensated. A debt begins when the saga times out or starts to compensate.
pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with debt as materialized (
            select p.amount, p.currency, (
                    select max(j.occurred_at)
                    from saga.saga_step j
                    where j.saga_id = s.saga_id and j.status_before in ('STARTED', 'IN_PROGRESS', 'COMPLETED')
                        and j.status_after in ('TIMED_OUT', 'COMPENSATING')
                ) as since
            from saga.saga_instance s
            join payment p on p.order_id = s.business_key
            where s.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED') and p.status = 'CAPTURED'
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'compensation_debt_money_minor_units' as name, array[c.currency] as labels,
                (select coalesce(sum(amount), 0) from debt d where d.currency = c.currency) as value
                from (select 'USD' as currency union select currency from debt) as c
            union all select 'compensation_debt_oldest_age_seconds', '{}',
                (select coalesce(extract(epoch from now() - min(since)), 0) from debt)
        ) as readings"#
    )
    .fetch_all(pool)
    .await
}
