//! The inbox: which consumer has processed which event. A claim is a row inserted in the transaction of the effect; a second
//! claim of the same event waits for the first and then returns nothing.

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
