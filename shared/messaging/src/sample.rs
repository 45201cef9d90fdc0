//! What is in the messaging tables at a moment, as gauges. Each is read by one replica and shown by no other.

use sqlx::PgPool;

/// A gauge that is read from the database.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

/// One value of a sampled gauge; its labels' values in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub name: String,
    pub labels: Vec<String>,
    pub value: f64,
}

pub const SAMPLED: &[Sampled] = &[
    Sampled { name: "outbox_pending", help: "Events that wait to be published", labels: &[] },
    Sampled { name: "outbox_parked_events", help: "Events that the broker refused too often", labels: &[] },
    Sampled { name: "outbox_oldest_pending_age_seconds", help: "Age of the oldest event that waits", labels: &[] },
    Sampled { name: "dead_letters_pending", help: "Dead letters that wait for somebody, by step", labels: &["step"] },
    Sampled { name: "dead_letters_oldest_age_seconds", help: "Age of the oldest of them", labels: &[] },
    Sampled { name: "relay_lease_held", help: "1 while some replica's relay is the active one", labels: &[] },
    Sampled { name: "relay_lease_epoch", help: "Grows with every takeover", labels: &[] },
    Sampled { name: "relay_paused", help: "1 while an operator has paused the relay", labels: &[] },
    Sampled { name: "consumers_paused", help: "1 for each consumer that an operator has paused", labels: &["step"] },
];

/// Reads the tables of one service, whose consumed steps these are.
pub async fn read(pool: &PgPool, steps: &[String]) -> Result<Vec<Reading>, sqlx::Error> {
    sqlx::query_as!(
        Reading,
        r#"select name as "name!", labels as "labels!", value::float8 as "value!"
        from (
            select 'outbox_pending' as name, '{}'::text[] as labels,
                (select count(*) from outbox where state = 'PENDING') as value
            union all select 'outbox_parked_events', '{}', (select count(*) from outbox where state = 'PARKED')
            union all select 'outbox_oldest_pending_age_seconds', '{}',
                (select coalesce(extract(epoch from now() - min(created_at)), 0) from outbox where state = 'PENDING')
            union all select 'dead_letters_pending', array[step],
                (select count(*) from dead_letter d where d.step = s.step and d.status = 'PENDING')
                from unnest($1::text[]) as s (step)
            union all select 'dead_letters_oldest_age_seconds', '{}',
                (select coalesce(extract(epoch from now() - min(created_at)), 0) from dead_letter where status = 'PENDING')
            union all select 'relay_lease_held', '{}', (expires_at > now())::integer from relay_lease
            union all select 'relay_lease_epoch', '{}', epoch from relay_lease
            union all select 'relay_paused', '{}', paused::integer from relay_lease
            union all select 'consumers_paused', array[step],
                (exists (select from paused_consumer p where p.consumer like '%-' || s.step))::integer
                from unnest($1::text[]) as s (step)
        ) as readings"#,
        steps,
    )
    .fetch_all(pool)
    .await
}
