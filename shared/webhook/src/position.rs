//! The lease and the position: one row. Each write of the runner requires its epoch.

use std::time::Duration;

use messaging::interval;
use serde::Serialize;
use sqlx::{Connection, PgConnection, PgPool};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{held, settle::Settled};

/// A lease that is held.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) holder: String,
    pub(crate) epoch: i64,
    /// The position.
    pub(crate) ordinal: i64,
}

/// Acquires or renews the lease. The first position is the end. A lease that expires later than in twice its duration was acquired
/// while the database's clock was ahead, and is free.
pub(crate) async fn hold(conn: &mut PgConnection, holder: &str, ttl: Duration) -> Result<Option<Lease>, sqlx::Error> {
    sqlx::query_as!(
        Lease,
        r#"update webhook_position
        set holder = $1, epoch = case when holder = $1 then epoch else epoch + 1 end, expires_at = now() + $2::interval,
            ordinal = coalesce(ordinal, (select case when is_called then last_value else 0 end from outbox_published_ordinal))
        where holder = $1 or expires_at < now() or expires_at > now() + 2 * $2::interval
        returning holder, epoch, ordinal as "ordinal!""#,
        holder,
        interval(ttl),
    )
    .fetch_optional(conn)
    .await
}

/// Releases the lease, so that another replica need not wait for its expiry.
pub(crate) async fn release(pool: &PgPool, holder: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("update webhook_position set expires_at = '-infinity' where holder = $1", holder)
        .execute(pool)
        .await?;
    Ok(())
}

/// Moves the position, and stores what is held back. False when another replica has the lease: then nothing is written.
pub(crate) async fn advance(
    conn: &mut PgConnection,
    lease: &Lease,
    settled: &Settled<'_>,
    wait: Option<Duration>,
) -> Result<bool, sqlx::Error> {
    let Some(position) = settled.position else { return Ok(true) };
    let mut transaction = conn.begin().await?;
    if !lock(&mut transaction, lease).await? {
        return Ok(false);
    }
    sqlx::query!(
        "update webhook_position set ordinal = greatest(ordinal, $1), last_failure = null, last_failure_at = null",
        position,
    )
    .execute(&mut *transaction)
    .await?;
    for one in &settled.held {
        held::hold_back(&mut transaction, one, wait).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// Locks the lease until the transaction's end, if it is still held.
pub(crate) async fn lock(conn: &mut PgConnection, lease: &Lease) -> Result<bool, sqlx::Error> {
    let held = sqlx::query_scalar!(
        r#"select true as "held!" from webhook_position where holder = $1 and epoch = $2 for update"#,
        lease.holder,
        lease.epoch,
    );
    Ok(held.fetch_optional(conn).await?.is_some())
}

pub(crate) async fn record_failure(conn: &mut PgConnection, lease: &Lease, why: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update webhook_position set last_failure = $3, last_failure_at = now() where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
        why,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The webhook of this service, in any replica.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WebhookBody)]
pub struct Position {
    /// The replica that posts.
    pub holder: String,
    /// Grows with each takeover.
    pub epoch: i64,
    /// Whether the holder's lease is valid now, by the database's clock.
    pub active: bool,
    /// The endpoint has accepted all events up to this one, except for those that are held back; null before it is switched on.
    #[schema(required = true)]
    pub ordinal: Option<i64>,
    /// The last published event.
    pub last_ordinal: i64,
    /// Events that are held back and will be posted again.
    pub waiting: i64,
    /// Events that wait for an operator.
    pub parked: i64,
    /// Age of the oldest event that was not accepted, in seconds.
    #[schema(required = true)]
    pub oldest_seconds: Option<f64>,
    /// Why nothing was accepted; null once something is.
    #[schema(required = true)]
    pub last_failure: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    pub last_failure_at: Option<OffsetDateTime>,
}

pub async fn state(pool: &PgPool) -> Result<Position, sqlx::Error> {
    sqlx::query_as!(
        Position,
        r#"select w.holder, w.epoch, w.expires_at > now() as "active!", w.ordinal,
            (select case when is_called then last_value else 0 end from outbox_published_ordinal) as "last_ordinal!",
            e.waiting as "waiting!", e.parked as "parked!",
            extract(epoch from now() - least(e.oldest, (select p.created_at from published_after(w.ordinal, 1) p)))::float8
                as oldest_seconds,
            w.last_failure, w.last_failure_at
        from webhook_position w
        cross join (
            select count(*) filter (where state = 'PENDING') as waiting, count(*) filter (where state = 'PARKED') as parked,
                min(created_at) as oldest
            from webhook_event
        ) e"#,
    )
    .fetch_one(pool)
    .await
}

/// Moves the position to the end: what was published until now and not posted is never posted. Held events remain.
pub async fn skip(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update webhook_position
        set ordinal = (select case when is_called then last_value else 0 end from outbox_published_ordinal)"
    )
    .execute(conn)
    .await?;
    Ok(())
}
