//! Gauges about the database server, which order reads for all.

use messaging::sample::{Reading, Sampled};
use sqlx::PgPool;

pub(crate) const SAMPLED: &[Sampled] = &[
    Sampled {
        name: "postgres_connections",
        help: "Connections to the suite's database, by what they do",
        labels: &["state"],
    },
    Sampled {
        name: "postgres_dead_tuples",
        help: "Rows that were replaced and not cleaned up yet, of the ten tables with most of them",
        labels: &["table"],
    },
    Sampled { name: "postgres_database_bytes", help: "Size of the suite's database", labels: &[] },
    Sampled {
        name: "postgres_oldest_xmin_age_seconds",
        help: "Age of the oldest transaction that keeps dead rows from being cleaned up",
        labels: &[],
    },
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
