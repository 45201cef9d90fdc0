//! Gauges about the database server, which order reads for all.

use messaging::sample::{Reading, Sampled};
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled { name: "postgres_connections", help: "Connections to the database, by role", labels: &["role"] },
    Sampled { name: "postgres_dead_tuples", help: "Dead rows of the ten tables with most of them", labels: &["table"] },
    Sampled { name: "postgres_database_bytes", help: "Size of the database", labels: &[] },
    Sampled {
        name: "postgres_oldest_xmin_age_seconds",
        help: "Age of the oldest transaction that keeps dead rows alive, as far as order may see",
        labels: &[],
    },
];

pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with top as materialized (
            select schemaname || '.' || relname as name, n_dead_tup
            from pg_stat_all_tables
            where schemaname in ('orders', 'inventory', 'payment', 'saga')
            order by n_dead_tup desc
            limit 10
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'postgres_connections' as name, array[coalesce(usename, 'none')::text] as labels, count(*) as value
                from pg_stat_activity where datname = current_database() group by usename
            union all select 'postgres_dead_tuples', array[top.name], n_dead_tup from top
            union all select 'postgres_database_bytes', '{}', pg_database_size(current_database())
            union all select 'postgres_oldest_xmin_age_seconds', '{}', saga.oldest_transaction_seconds()
        ) as readings"#
    )
    .fetch_all(pool)
    .await
}
