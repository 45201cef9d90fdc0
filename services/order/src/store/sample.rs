//! Gauges of the database server, which order reads for all services.

use messaging::sample::{Reading, Sampled};
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled::new("postgres_connections", "Connections to the suite's database, by state", &["state"]),
    Sampled::new("postgres_dead_tuples", "Dead rows of the ten tables with most of them", &["table"]),
    Sampled::new("postgres_database_bytes", "Size of the suite's database", &[]),
    Sampled::new("postgres_oldest_xmin_age_seconds", "Age of the oldest transaction that blocks vacuum", &[]),
];

pub(crate) async fn read(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with activity as materialized (
            select state, connections, oldest_snapshot_seconds from saga.activity()
        ), top as materialized (
            select schemaname || '.' || relname as name, n_dead_tup
            from pg_stat_all_tables
            where schemaname !~ '^pg_' and schemaname <> 'information_schema'
            order by n_dead_tup desc, relname
            limit 10
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'postgres_connections' as name, array[state] as labels, connections as value from activity
            union all select 'postgres_dead_tuples', array[top.name], n_dead_tup from top
            union all select 'postgres_database_bytes', '{}', pg_database_size(current_database())
            union all select 'postgres_oldest_xmin_age_seconds', '{}',
                (select coalesce(max(oldest_snapshot_seconds), 0) from activity)
        ) as readings"#
    )
    .fetch_all(pool)
    .await
}
