//! Recovery of events that the broker has lost. When a running saga makes no progress for half its deadline, the service that
//! published its last event publishes it once more. The triggers of the steps that a completed saga owes are republished
//! repeatedly, with exponential backoff, for as long as every consumer's inbox remembers them. An event that is still pending in
//! the outbox is not republished.

use std::time::Duration;

use messaging::{Outbox, UnitOfWork, interval, outbox};
use saga::{SagaDefinition, Step};
use uuid::Uuid;

/// Republishes the last events of this service's stalled sagas; returns how many.
pub async fn republish(outbox: &Outbox, stalled_after: Duration) -> Result<u64, sqlx::Error> {
    let mut work = outbox.begin().await?;
    let stalled: Vec<Uuid> = sqlx::query_scalar!(
        // Two parts, because each has an index of its own. Sagas whose deadline has passed are left to the timeout detector.
        "with stalled as (
            select saga_id, last_event_id from saga.saga_instance
            where status in ('STARTED', 'IN_PROGRESS') and deadline >= now()
                and last_service = $1 and not stall_nudged and last_progress_at < now() - $2::interval
            union all
            select saga_id, last_event_id from saga.saga_instance
            where status in ('TIMED_OUT', 'COMPENSATING')
                and last_service = $1 and not stall_nudged and last_progress_at < now() - $2::interval
        ), candidate as materialized (
            select saga_id
            from stalled
            where exists (select from outbox_published p where p.event_id = last_event_id)
                and not exists (select from outbox o where o.event_id = last_event_id)
            limit 500
        )
        update saga.saga_instance
        set stall_nudged = true
        where saga_id in (
            select saga_id from saga.saga_instance
            where saga_id in (select saga_id from candidate)
                and last_service = $1 and not stall_nudged and last_progress_at < now() - $2::interval
            for update skip locked
        )
        returning last_event_id",
        outbox.service().0,
        interval(stalled_after),
    )
    .fetch_all(work.conn())
    .await?;
    republish_events(work, &stalled, "sagas stalled; their last events are republished").await
}

/// Republishes the events of this service that trigger the steps which completed sagas owe, each after `first_wait`, then
/// after twice that time, and so on up to 12 hours; returns how many. A consumer that has taken the step drops the duplicate, so
/// `remembered` must not exceed the time for which an inbox remembers an event.
pub async fn republish_owed(
    outbox: &Outbox,
    definition: &SagaDefinition,
    first_wait: Duration,
    remembered: Duration,
) -> Result<u64, sqlx::Error> {
    let owed = definition.after_pivot();
    if owed.is_empty() {
        return Ok(0);
    }
    let of = |name: fn(&Step) -> Option<&'static str>| -> Vec<String> {
        owed.iter().map(|step| name(step).unwrap_or_default().to_owned()).collect()
    };
    let mut work = outbox.begin().await?;
    let late: Vec<Uuid> = sqlx::query_scalar!(
        // The trigger may have been published in an older version. A published event is kept for at least a day.
        "with owing as materialized (
            select saga_id, receipts_due from saga.saga_instance
            where status = 'COMPLETED' and receipts_due <> '{}' and saga_type = $1
        ), told as materialized (
            select distinct s.event_id
            from owing
            join saga.saga_step s using (saga_id)
            join unnest($2::text[], $3::text[]) as owed (service, event)
                on owed.service = any(owing.receipts_due) and starts_with(s.event_type, owed.event || '.v')
            where s.service = $4 and s.event_id is not null
        )
        select event_id as \"event_id!\"
        from told
        where exists (
                select from outbox_published p
                where p.event_id = told.event_id
                    and (p.published_at < now() - least($5::interval * power(2, least(p.republication, 10)), interval '12 hours')
                        -- The database's clock was ahead.
                        or p.published_at > now() + interval '1 minute')
                    and p.created_at > now() - $6::interval
            )
            and not exists (select from outbox o where o.event_id = told.event_id)
        limit 500",
        definition.saga_type,
        &of(|step| step.service.map(|service| service.0)),
        &of(|step| step.consumes().map(|event| event.name)),
        outbox.service().0,
        interval(first_wait),
        interval(remembered),
    )
    .fetch_all(work.conn())
    .await?;
    republish_events(work, &late, "completed sagas owe steps; the triggers of these are republished").await
}

async fn republish_events(mut work: UnitOfWork, events: &[Uuid], why: &str) -> Result<u64, sqlx::Error> {
    if events.is_empty() {
        return Ok(0);
    }
    let republished = outbox::republish(work.conn(), events).await?;
    work.commit().await?;
    if republished > 0 {
        tracing::warn!(republished, "{why}");
    }
    Ok(republished)
}
