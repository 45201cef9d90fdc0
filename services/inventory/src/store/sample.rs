//! Gauges read from inventory's tables: the stock, and the units that are still to be given back.

use messaging::sample::{Reading, Sampled};
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled {
        name: "compensation_debt_stock_units",
        help: "Reserved for orders that are being undone, and not released yet",
        labels: &[],
    },
    Sampled { name: "compensation_debt_stock_oldest_age_seconds", help: "Age of the oldest such debt", labels: &[] },
    Sampled { name: "inventory_products", help: "Products of the catalogue", labels: &[] },
    Sampled {
        name: "inventory_stock_units",
        help: "Units of the ten products of which most are reserved",
        labels: &["sku", "state"],
    },
];

pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with debt as materialized (
            select s.last_progress_at,
                (select sum(l.quantity) from reservation_line l where l.order_id = r.order_id and l.status = 'RESERVED') as units
            from saga.saga_instance s join reservation r on r.order_id = s.business_key
            where s.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED') and r.status = 'RESERVED'
        ), top as materialized (
            select sku, available, reserved from product order by reserved desc, sku limit 10
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'compensation_debt_stock_units' as name, '{}'::text[] as labels,
                (select coalesce(sum(units), 0) from debt) as value
            union all select 'compensation_debt_stock_oldest_age_seconds', '{}',
                (select coalesce(extract(epoch from now() - min(last_progress_at)), 0) from debt)
            union all select 'inventory_products', '{}', (select count(*) from product)
            union all select 'inventory_stock_units', array[sku, 'available'], available from top
            union all select 'inventory_stock_units', array[sku, 'reserved'], reserved from top
        ) as readings"#
    )
    .fetch_all(pool)
    .await
}
