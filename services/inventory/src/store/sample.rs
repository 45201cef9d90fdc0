//! Gauges from inventory's tables: the stock, and the units that are still to be released.

use messaging::sample::{Reading, Sampled};
use saga_store::sample::OLDEST_COMPENSATION_DEBT;
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled::new(
        "compensation_debt_stock_units",
        "Units reserved for orders whose saga is being compensated, and not released yet",
        &[],
    ),
    OLDEST_COMPENSATION_DEBT,
    Sampled::new("inventory_products", "Products of the catalogue", &[]),
    Sampled::new("inventory_stock_units", "Units of the ten products with most reserved units", &["sku", "state"]),
];

/// Starts from the few sagas that are being compensated. A debt begins when the saga times out or starts to compensate.
pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with debt as materialized (
            select (
                    select sum(l.quantity)
                    from reservation_line l
                    where l.order_id = r.order_id and l.status = 'RESERVED'
                ) as units, (
                    select max(j.occurred_at)
                    from saga.saga_step j
                    where j.saga_id = s.saga_id and j.status_before in ('STARTED', 'IN_PROGRESS', 'COMPLETED')
                        and j.status_after in ('TIMED_OUT', 'COMPENSATING')
                ) as since
            from saga.saga_instance s
            join reservation r on r.order_id = s.business_key
            where s.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED') and r.status = 'RESERVED'
        ), top as materialized (
            select sku, available, reserved from product order by reserved desc, sku limit 10
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'compensation_debt_stock_units' as name, '{}'::text[] as labels,
                (select coalesce(sum(units), 0) from debt) as value
            union all select 'compensation_debt_oldest_age_seconds', '{}',
                (select coalesce(extract(epoch from now() - min(since)), 0) from debt)
            union all select 'inventory_products', '{}', (select count(*) from product)
            union all select 'inventory_stock_units', array[sku, 'available'], available from top
            union all select 'inventory_stock_units', array[sku, 'reserved'], reserved from top
        ) as readings"#
    )
    .fetch_all(pool)
    .await
}
