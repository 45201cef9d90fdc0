//! The inbox: which consumer has processed which event. A claim is a row inserted in the transaction of the effect; a second
//! claim of the same event waits for the first, returns nothing, and is counted on the row as a duplicate.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

/// Claims the events that `consumer` has not processed yet, and returns their ids.
pub(crate) async fn claim(
    conn: &mut PgConnection,
    consumer: &str,
    event_ids: &[Uuid],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    // Sorted, so that two replicas with overlapping batches cannot deadlock.
    let mut sorted = event_ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let claimed = sqlx::query_scalar!(
        "insert into inbox (event_id, consumer)
        select event_id, $2
        from unnest($1::uuid[]) as t (event_id)
        on conflict do nothing
        returning event_id",
        &sorted,
        consumer,
    )
    .fetch_all(conn)
    .await?;
    Ok(claimed.into_iter().collect())
}

/// Counts deliveries that are dropped because `consumer` has processed their events already; an event may be given repeatedly.
pub(crate) async fn count_duplicates(
    conn: &mut PgConnection,
    consumer: &str,
    event_ids: &[Uuid],
) -> Result<(), sqlx::Error> {
    // Locked in the order of the claims, so that two replicas with overlapping batches cannot deadlock.
    sqlx::query!(
        "with delivery as (
            select event_id, count(*)::integer as dropped
            from unnest($1::uuid[]) as t (event_id)
            group by event_id
        ), locked as (
            select event_id
            from inbox
            where event_id = any($1) and consumer = $2
            order by event_id
            for no key update
        )
        update inbox i
        set duplicates = i.duplicates + dropped
        from locked
        join delivery using (event_id)
        where i.event_id = any($1) and i.consumer = $2 and i.event_id = locked.event_id",
        event_ids,
        consumer,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes claims of this transaction.
pub(crate) async fn unclaim(conn: &mut PgConnection, consumer: &str, event_ids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from inbox where event_id = any($1) and consumer = $2", event_ids, consumer)
        .execute(conn)
        .await?;
    Ok(())
}

/// The events that `consumer` has already processed: read before work that should not start twice. Only the claim decides.
pub async fn already_processed(
    conn: &mut PgConnection,
    consumer: &str,
    event_ids: &[Uuid],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let processed = sqlx::query_scalar!(
        "select event_id
        from inbox
        where event_id = any($1) and consumer = $2",
        event_ids,
        consumer,
    )
    .fetch_all(conn)
    .await?;
    Ok(processed.into_iter().collect())
}
