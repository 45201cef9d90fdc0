//! The events of a saga with their bodies, from all services. Order's role cannot read other services' tables; functions of the
//! schemas' owner (`shared/messaging/migrations/0016_event_history_additive.sql`) read for it, without tokens of cards and addresses.

use messaging::outbox::PastEvent;
use sqlx::PgConnection;
use uuid::Uuid;

/// Those of these events that are still kept, in any order.
pub(crate) async fn events(conn: &mut PgConnection, event_ids: &[Uuid]) -> Result<Vec<PastEvent>, sqlx::Error> {
    sqlx::query_as!(
        PastEvent,
        r#"select event_id as "event_id!", event_type as "event_type!", aggregate_sequence as "aggregate_sequence!",
            payload as "payload!", published_at
        from (
            select * from orders.events($1)
            union all
            select * from inventory.events($1)
            union all
            select * from payment.events($1)
        ) as kept"#,
        event_ids,
    )
    .fetch_all(conn)
    .await
}
