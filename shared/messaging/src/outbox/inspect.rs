//! The outbox as an operator sees it: waiting, parked, published and discarded events as one list.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::ids_before;

/// An event in the outbox, or published or discarded from it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = OutboxEntry))]
pub struct Entry {
    pub event_id: Uuid,
    /// `PENDING`, `PARKED`, `PUBLISHED` or `DISCARDED`.
    pub state: String,
    pub position: i64,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub aggregate_sequence: i64,
    pub event_type: String,
    pub subject: String,
    #[serde(skip)]
    pub headers: Value,
    #[serde(skip)]
    pub payload: Value,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub saga_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    pub attempts: i32,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_error: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub published_at: Option<OffsetDateTime>,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub stream: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub stream_sequence: Option<i64>,
    /// The relay that published it.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub relay: Option<String>,
    /// How often it was published again because the broker had lost it.
    pub republication: i32,
}

/// Newest first, of one state or all, older than `before`.
pub async fn list(
    pool: &PgPool,
    state: Option<&str>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Entry>, sqlx::Error> {
    select(pool, state, ids_before(before), limit).await
}

/// One event; as pending while it is being published again.
pub async fn get(pool: &PgPool, event_id: Uuid) -> Result<Option<Entry>, sqlx::Error> {
    Ok(select(pool, None, event_id..=event_id, 1).await?.pop())
}

async fn select(
    pool: &PgPool,
    state: Option<&str>,
    ids: RangeInclusive<Uuid>,
    limit: i64,
) -> Result<Vec<Entry>, sqlx::Error> {
    sqlx::query_as!(
        Entry,
        r#"select event_id as "event_id!", state as "state!", position as "position!",
            aggregate_type as "aggregate_type!", aggregate_id as "aggregate_id!",
            aggregate_sequence as "aggregate_sequence!", event_type as "event_type!", subject as "subject!",
            headers as "headers!", payload as "payload!", saga_id, created_at as "created_at!",
            attempts as "attempts!", last_error, published_at, stream, stream_sequence, relay,
            republication as "republication!"
        from (
            (select event_id, state, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
                headers, payload, saga_id, created_at, attempts, last_error, null::timestamptz as published_at,
                null::text as stream, null::bigint as stream_sequence, null::text as relay, republication, 0 as place
            from outbox
            where ($1::text is null or state = $1) and event_id between $2 and $3
            order by event_id desc
            limit $4)
            union all
            (select event_id, 'PUBLISHED', position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
                subject, headers, payload, saga_id, created_at, 0, null, published_at, stream, stream_sequence, relay,
                republication, 1
            from outbox_published
            where ($1::text is null or $1 = 'PUBLISHED') and event_id between $2 and $3
            order by event_id desc
            limit $4)
            union all
            (select o.event_id, 'DISCARDED', position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
                headers, payload, saga_id, created_at, attempts, last_error, null, null, null, null, republication, 2
            from outbox_action a
            cross join lateral json_populate_record(null::outbox, a.event) o
            where a.action = 'DISCARD' and ($1::text is null or $1 = 'DISCARDED') and a.event_id between $2 and $3
            order by a.event_id desc
            limit $4)
        ) entry
        order by event_id desc, place
        limit $4"#,
        state,
        ids.start(),
        ids.end(),
        limit,
    )
    .fetch_all(pool)
    .await
}
