//! Past events: those of one aggregate that belong to no saga, as long as they are kept.

use saga::Event;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// An event with its body.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastEvent {
    pub event_id: Uuid,
    /// With its version: `ProductCreated.v1`.
    pub event_type: String,
    /// Grows with each event of the aggregate.
    pub aggregate_sequence: i64,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub payload: Value,
    /// Null while it waits for the relay.
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub published_at: Option<OffsetDateTime>,
}

/// The latest events of an aggregate, of the kind that `E` belongs to, with a sequence below `before`, latest first, from this service's outbox and its archive.
pub async fn of_aggregate<E: Event>(
    conn: &mut PgConnection,
    id: &str,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<PastEvent>, sqlx::Error> {
    sqlx::query_as!(
        PastEvent,
        r#"select event_id as "event_id!", event_type as "event_type!", aggregate_sequence as "aggregate_sequence!",
            payload as "payload!", published_at
        from aggregate_events($1, $2, $3, $4)"#,
        E::TYPE.aggregate,
        id,
        before.unwrap_or(i64::MAX),
        limit,
    )
    .fetch_all(conn)
    .await
}
