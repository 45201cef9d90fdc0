//! Which sagas run at a moment, as gauges; read by one replica of the service that owns the end of sagas.

use messaging::sample::{Reading, Sampled};
use saga::SagaDefinition;
use sqlx::PgPool;

pub const SAMPLED: &[Sampled] = &[
    Sampled {
        name: "saga_active",
        help: "Sagas that have not ended, by status; FAILED ones wait for an operator",
        labels: &["saga_type", "status"],
    },
    Sampled {
        name: "saga_oldest_active_age_seconds",
        help: "For how long the oldest saga has been running that waits for no operator",
        labels: &["saga_type"],
    },
    Sampled {
        name: "saga_receipts_due",
        help: "Sagas that wait for a service to confirm its undo, by service",
        labels: &["service"],
    },
    Sampled { name: "saga_stuck", help: "Sagas whose compensation has FAILED: an operator resumes them", labels: &[] },
];

/// Everything is read through the two partial indexes, which hold only sagas that have not ended.
pub async fn read(pool: &PgPool, definition: &SagaDefinition) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with running as materialized (
            select status, started_at, receipts_due
            from saga.saga_instance
            where saga_type = $1 and status in ('STARTED', 'IN_PROGRESS')
            union all
            select status, started_at, receipts_due
            from saga.saga_instance
            where saga_type = $1 and status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'saga_active' as name, array[$1::text, s.status] as labels,
                (select count(*) from running r where r.status = s.status) as value
                from unnest(array['STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING', 'FAILED']) as s (status)
            union all select 'saga_oldest_active_age_seconds', array[$1::text],
                (select coalesce(extract(epoch from now() - min(started_at)), 0) from running where status <> 'FAILED')
            union all select 'saga_receipts_due', array[p.service],
                (select count(*) from running r where p.service = any(r.receipts_due))
                from unnest($2::text[]) as p (service)
            union all select 'saga_stuck', '{}', (select count(*) from running where status = 'FAILED')
        ) as readings"#,
        definition.saga_type,
        &definition.participants().map(|service| service.to_string()).collect::<Vec<_>>(),
    )
    .fetch_all(pool)
    .await
}
