//! Gauges of unfinished sagas; read by one replica of the service that decides how sagas end.

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
        help: "Age of the oldest running saga; FAILED ones do not count",
        labels: &["saga_type"],
    },
    Sampled {
        name: "saga_overdue",
        help: "Running sagas whose deadline has passed: few, and for a moment, unless AUTO_COMPENSATE is off",
        labels: &["saga_type"],
    },
    Sampled {
        name: "saga_receipts_due",
        help: "Sagas that wait for a service's receipt, the confirmation of its undo, by service",
        labels: &["service"],
    },
    Sampled { name: "saga_owing", help: "Completed sagas that owe a step after their pivot", labels: &["saga_type"] },
    Sampled {
        name: "saga_oldest_owing_age_seconds",
        help: "Time since the completion of the oldest saga that owes a step after its pivot",
        labels: &["saga_type"],
    },
    Sampled { name: "saga_stuck", help: "Sagas whose compensation has FAILED: an operator resumes them", labels: &[] },
];

/// A gauge of each service that undoes steps: the service reads it from its own tables.
pub const OLDEST_COMPENSATION_DEBT: Sampled = Sampled::new(
    "compensation_debt_oldest_age_seconds",
    "How long ago the oldest compensation started that the service has not done yet",
    &[],
);

/// Reads through the three partial indexes only, which hold sagas that have not ended or that owe a step.
pub async fn read(pool: &PgPool, definition: &SagaDefinition) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with running as materialized (
            select status, started_at, receipts_due, deadline < now() as overdue
            from saga.saga_instance
            where saga_type = $1 and status in ('STARTED', 'IN_PROGRESS')
            union all
            select status, started_at, receipts_due, false
            from saga.saga_instance
            where saga_type = $1 and status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
        ), owing as materialized (
            select completed_at
            from saga.saga_instance
            where saga_type = $1 and status = 'COMPLETED' and receipts_due <> '{}'
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'saga_active' as name, array[$1::text, s.status] as labels,
                (select count(*) from running r where r.status = s.status) as value
                from unnest(array['STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING', 'FAILED']) as s (status)
            union all select 'saga_oldest_active_age_seconds', array[$1::text],
                (select coalesce(extract(epoch from now() - min(started_at)), 0) from running where status <> 'FAILED')
            union all select 'saga_overdue', array[$1::text], (select count(*) from running where overdue)
            union all select 'saga_receipts_due', array[p.service],
                (select count(*) from running r where p.service = any(r.receipts_due))
                from unnest($2::text[]) as p (service)
            union all select 'saga_owing', array[$1::text], (select count(*) from owing)
            union all select 'saga_oldest_owing_age_seconds', array[$1::text],
                (select coalesce(extract(epoch from now() - min(completed_at)), 0) from owing)
            union all select 'saga_stuck', '{}', (select count(*) from running where status = 'FAILED')
        ) as readings"#,
        definition.saga_type,
        &definition.participants().map(|service| service.to_string()).collect::<Vec<_>>(),
    )
    .fetch_all(pool)
    .await
}
