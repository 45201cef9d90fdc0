//! Published events: where each is stored, how they are put back to be published again, and in which order others follow them.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::PendingRow;

/// The place of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In the outbox, possibly parked.
    Waiting,
    /// In the stream of this epoch, unless the stream has lost it.
    Published { stream_epoch: i64, sequence: i64 },
}

/// The places of these events, as far as they are still recorded.
pub async fn whereabouts(
    conn: &mut PgConnection,
    event_ids: &[Uuid],
) -> Result<HashMap<Uuid, Whereabouts>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select event_id as "event_id!", stream_epoch, stream_sequence
        from (
            select p.event_id, case when v.event_id is null then p.stream_epoch else 0 end as stream_epoch, p.stream_sequence
            from outbox_published p
            left join void_receipt v on v.event_id = p.event_id
            where p.event_id = any($1)
            union all
            select event_id, null, null from outbox where event_id = any($1)
        ) as place"#,
        event_ids,
    )
    .fetch_all(conn)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        // A republished event is in both tables until it is acknowledged again.
        match (row.stream_epoch, row.stream_sequence) {
            (Some(stream_epoch), Some(sequence)) => {
                found.entry(row.event_id).or_insert(Whereabouts::Published { stream_epoch, sequence });
            }
            _ => {
                found.insert(row.event_id, Whereabouts::Waiting);
            }
        }
    }
    Ok(found)
}

/// Puts published events back into the outbox, in order, to be published again: with the same event id but another message id, so
/// that the broker's deduplication accepts them.
pub async fn republish(conn: &mut PgConnection, event_ids: &[Uuid]) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "insert into outbox
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, republication)
        overriding system value
        select event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers,
            payload, saga_id, created_at, republication + 1
        from outbox_published
        where event_id = any($1)
        order by position
        on conflict do nothing",
        event_ids,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// A published event, and its place in the order in which this service's events were published.
#[derive(Debug, Clone)]
pub struct PublishedRow {
    pub ordinal: i64,
    pub aggregate_type: String,
    pub event: PendingRow,
}

/// The next published events after this ordinal, in order, at most `most` and at least one if there are any; those of the archive,
/// too. None of lower ordinals is committed later; but until something is committed after this read, a crash may undo the latest
/// moves, and give their ordinals to other events (decision 96). Their bodies have no tokens of cards and no addresses.
pub async fn published_after(conn: &mut PgConnection, after: i64, most: i32) -> Result<Vec<PublishedRow>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select ordinal as "ordinal!", event_id as "event_id!", "position" as "position!", aggregate_type as "aggregate_type!",
            aggregate_id as "aggregate_id!", aggregate_sequence as "aggregate_sequence!", event_type as "event_type!",
            subject as "subject!", headers as "headers!", payload as "payload!", saga_id, created_at as "created_at!"
        from published_after($1, $2)"#,
        after,
        most,
    );
    let published = rows.fetch_all(conn).await?.into_iter().map(|row| PublishedRow {
        ordinal: row.ordinal,
        aggregate_type: row.aggregate_type,
        event: PendingRow {
            event_id: row.event_id,
            position: row.position,
            aggregate_id: row.aggregate_id,
            aggregate_sequence: row.aggregate_sequence,
            event_type: row.event_type,
            subject: row.subject,
            headers: row.headers,
            payload: row.payload,
            saga_id: row.saga_id,
            created_at: row.created_at,
            republication: 0,
            attempts: 0,
        },
    });
    Ok(published.collect())
}
