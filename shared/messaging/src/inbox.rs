//! The inbox: which consumer has had which event. A claim is a row inserted in the transaction of
//! the effect; a second claim of the same event waits for the first and then finds it taken.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

/// Claims the events that `consumer` has not had yet, and returns those.
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

/// Which of the events `consumer` has had already: read before work that should not even begin
/// twice. Decides nothing; the claim does.
pub async fn already_had(
    conn: &mut PgConnection,
    consumer: &str,
    event_ids: &[Uuid],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let had = sqlx::query_scalar!(
        "select event_id
        from inbox
        where event_id = any($1) and consumer = $2",
        event_ids,
        consumer,
    )
    .fetch_all(conn)
    .await?;
    Ok(had.into_iter().collect())
}
