//! Gauges read from the messaging tables. One replica of a service reads and exports them.

use saga::Step;
use sqlx::PgPool;

/// A gauge that is read from the database.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

impl Sampled {
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Sampled { name, help, labels }
    }
}

/// One value of a sampled gauge, with its label values in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub name: String,
    pub labels: Vec<String>,
    pub value: f64,
}

pub const SAMPLED: &[Sampled] = &[
    Sampled::new("outbox_pending", "Events that wait to be published", &[]),
    Sampled::new("outbox_parked_events", "Events that the broker refused, and that wait", &[]),
    Sampled::new("outbox_oldest_pending_age_seconds", "Age of the oldest event that waits to be published", &[]),
    Sampled::new("dead_letters_pending", "Pending dead letters, by step", &["step"]),
    Sampled::new("dead_letters_oldest_age_seconds", "Age of the oldest pending dead letter", &[]),
    Sampled::new(
        "delivery_attempts_waiting",
        "Events that failed in the last ten minutes and are retried, by step",
        &["step"],
    ),
    Sampled::new("relay_lease_held", "1 while some replica's relay is active", &[]),
    Sampled::new("relay_lease_epoch", "Grows with each takeover", &[]),
    Sampled::new("relay_paused", "1 while an operator has paused the relay", &[]),
    Sampled::new("consumers_paused", "1 while an operator has paused the step", &["step"]),
];

/// Reads the tables of one service, which consumes these steps. Published and applied events are not read, except for the keys of
/// the few events that failed lately.
pub async fn read(pool: &PgPool, steps: &[&Step]) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"with waiting as materialized (
            select count(*) filter (where state = 'PENDING') as pending,
                count(*) filter (where state = 'PARKED') as parked,
                coalesce(extract(epoch from now() - min(created_at) filter (where state = 'PENDING')), 0) as oldest
            from outbox
        ), letters as materialized (
            select step, count(*) as pending, min(created_at) as oldest
            from dead_letter
            where status = 'PENDING'
            group by step
        ), retries as materialized (
            select a.consumer, count(*) as events
            from delivery_attempt a
            where a.updated_at > now() - interval '10 minutes'
                and not exists (select from inbox i where i.event_id = a.event_id and i.consumer = a.consumer)
                and not exists (select from dead_letter d where d.consumer = a.consumer and d.event_id = a.event_id)
            group by a.consumer
        ), step as materialized (
            select step, consumer from unnest($1::text[], $2::text[]) as t (step, consumer)
        )
        select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'outbox_pending' as name, '{}'::text[] as labels, pending as value from waiting
            union all select 'outbox_parked_events', '{}', parked from waiting
            union all select 'outbox_oldest_pending_age_seconds', '{}', oldest from waiting
            union all select 'dead_letters_pending', array[step], coalesce(pending, 0)
                from step left join letters using (step)
            union all select 'dead_letters_oldest_age_seconds', '{}',
                coalesce(extract(epoch from now() - min(oldest)), 0) from letters
            union all select 'delivery_attempts_waiting', array[step], coalesce(events, 0)
                from step left join retries using (consumer)
            union all select 'relay_lease_held', '{}', (expires_at > now())::integer from relay_lease
            union all select 'relay_lease_epoch', '{}', epoch from relay_lease
            union all select 'relay_paused', '{}', paused::integer from relay_lease
            union all select 'consumers_paused', array[step], (p.consumer is not null)::integer
                from step left join paused_consumer p using (consumer)
        ) as readings"#,
        &steps.iter().map(|step| step.name.to_owned()).collect::<Vec<_>>(),
        &steps.iter().map(|step| step.consumer()).collect::<Vec<_>>(),
    )
    .fetch_all(pool)
    .await
}
