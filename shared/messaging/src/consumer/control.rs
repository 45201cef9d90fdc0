//! An operator's control of a consumer. The pause is a database row, so that it applies in every replica.

use async_nats::jetstream::consumer::PullConsumer;
use saga::Service;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

use crate::{Bus, error::chain, response_timeout::statement_timeout};

/// A consumer as an operator sees it. `broker` is an error while the broker is unavailable.
#[derive(Debug, Clone)]
pub struct ConsumerState {
    pub paused_since: Option<OffsetDateTime>,
    pub broker: Result<BrokerSide, String>,
}

#[derive(Debug, Clone, Copy)]
pub struct BrokerSide {
    /// Published and not delivered yet.
    pub lag: u64,
    /// Delivered and not acknowledged yet.
    pub in_flight: usize,
    pub redelivered: usize,
    /// Open pull requests; none while no replica consumes.
    pub pulls: usize,
}

pub async fn state(pool: &PgPool, bus: &Bus, consumer: &str, publisher: Service) -> Result<ConsumerState, sqlx::Error> {
    let paused_since = sqlx::query_scalar!("select paused_at from paused_consumer where consumer = $1", consumer)
        .fetch_optional(pool)
        .await?;
    Ok(ConsumerState { paused_since, broker: broker_side(bus, consumer, publisher).await })
}

/// The broker's view of a consumer.
///
/// # Errors
/// Why the broker does not answer.
pub async fn broker_side(bus: &Bus, consumer: &str, publisher: Service) -> Result<BrokerSide, String> {
    if !bus.is_connected() {
        return Err("the broker is unavailable".to_owned());
    }
    let found: PullConsumer =
        bus.jetstream.get_consumer_from_stream(consumer, publisher.stream()).await.map_err(|e| chain(&e))?;
    let info = found.cached_info();
    Ok(BrokerSide {
        lag: info.num_pending,
        in_flight: info.num_ack_pending,
        redelivered: info.num_redelivered,
        pulls: info.num_waiting,
    })
}

pub(super) async fn is_paused(pool: &PgPool, consumer: &str) -> Result<bool, sqlx::Error> {
    let paused = sqlx::query_scalar!(
        r#"select exists (select from paused_consumer where consumer = $1) as "paused!""#,
        consumer,
    );
    statement_timeout(paused.fetch_one(pool)).await
}

/// Pauses or resumes a consumer in every replica.
pub async fn pause(conn: &mut PgConnection, consumer: &str, paused: bool) -> Result<(), sqlx::Error> {
    if paused {
        sqlx::query!("insert into paused_consumer (consumer) values ($1) on conflict do nothing", consumer)
            .execute(conn)
            .await?;
    } else {
        sqlx::query!("delete from paused_consumer where consumer = $1", consumer).execute(conn).await?;
    }
    Ok(())
}
