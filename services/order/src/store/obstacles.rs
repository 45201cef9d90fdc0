//! The facts that may delay an order, in all services. Order's role cannot read other services' tables; functions of the
//! schemas' owner (`shared/messaging/migrations/0009_obstacles.sql`,
//! `migrations/payment/0003_tombstone_at_gateway_additive.sql`) read for it.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// One fact about the events of a saga in one service's schema; the kinds are those of the function `obstacles`.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) service: String,
    pub(crate) kind: String,
    /// The durable consumer's name, or for a breaker the step's.
    pub(crate) consumer: Option<String>,
    pub(crate) event_id: Option<Uuid>,
    pub(crate) state: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) attempts: i32,
    pub(crate) since: Option<OffsetDateTime>,
    pub(crate) reference: Option<String>,
}

/// The facts of all three schemas, in one snapshot; given the durable consumers of each that take part in the saga.
pub(crate) async fn obstacles(
    conn: &mut PgConnection,
    saga_id: Uuid,
    [order, inventory, payment]: &[Vec<String>; 3],
) -> Result<Vec<Fact>, sqlx::Error> {
    sqlx::query_as!(
        Fact,
        r#"select 'order' as "service!", kind as "kind!", consumer, event_id, state, detail,
            attempts as "attempts!", since, reference
        from orders.obstacles($1, $2)
        union all
        select 'inventory', kind, consumer, event_id, state, detail, attempts, since, reference
        from inventory.obstacles($1, $3)
        union all
        select 'payment', kind, consumer, event_id, state, detail, attempts, since, reference
        from payment.obstacles($1, $4)"#,
        saga_id,
        order,
        inventory,
        payment,
    )
    .fetch_all(conn)
    .await
}

/// A payment that waits for the card processor.
#[derive(Debug, Clone)]
pub(crate) struct AtGateway {
    pub(crate) payment_id: Uuid,
    /// `CHARGE`, or `UNDO`: the charge of a cancelled order is to be refunded or voided.
    pub(crate) intent: String,
    pub(crate) since: OffsetDateTime,
}

pub(crate) async fn at_gateway(conn: &mut PgConnection, order_id: Uuid) -> Result<Option<AtGateway>, sqlx::Error> {
    sqlx::query_as!(
        AtGateway,
        r#"select payment_id as "payment_id!", intent as "intent!", since as "since!"
        from payment.at_gateway($1)"#,
        order_id,
    )
    .fetch_optional(conn)
    .await
}
