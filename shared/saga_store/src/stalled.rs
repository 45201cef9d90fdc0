//! When a saga that still runs, or that owes a step behind its pivot, made no progress for half its deadline, the service that
//! published its last event publishes it once more. That covers a message that vanished from the broker for whatever reason.
//! An event that still waits in the outbox is not published once more: it has all its time yet.

use std::time::Duration;

use messaging::{Outbox, lease::interval, outbox};
use uuid::Uuid;

/// Publishes the last events of this service's stalled sagas again; returns how many.
pub async fn republish(outbox: &Outbox, patience: Duration) -> Result<u64, sqlx::Error> {
    let mut work = outbox.begin().await?;
    let stalled: Vec<Uuid> = sqlx::query_scalar!(
        // Three parts, because each has an index of its own. Sagas whose deadline has passed are the timeout detector's.
        "with stalled as (
            select saga_id, last_event_id from saga.saga_instance
            where status in ('STARTED', 'IN_PROGRESS') and deadline >= now()
                and last_service = $1 and not stall_nudged and last_progress_at < now() - $2::interval
            union all
            select saga_id, last_event_id from saga.saga_instance
            where status in ('TIMED_OUT', 'COMPENSATING')
                and last_service = $1 and not stall_nudged and last_progress_at < now() - $2::interval
            union all
            select saga_id, last_event_id from saga.saga_instance
            where status = 'COMPLETED' and receipts_due <> '{}'
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
        interval(patience),
    )
    .fetch_all(work.conn())
    .await?;
    if stalled.is_empty() {
        return Ok(0);
    }
    let republished = outbox::republish(work.conn(), &stalled).await?;
    work.commit().await?;
    if republished > 0 {
        tracing::warn!(republished, "sagas stalled; their last events are published again");
    }
    Ok(republished)
}
