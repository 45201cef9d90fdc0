//! The relay's lease: the active relay, its epoch, and the broker's last acknowledgement.

use std::time::Duration;

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::interval;

/// A lease that is held.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) holder: String,
    /// Grows with each takeover; each write of the relay is conditional on it.
    pub(super) epoch: i64,
    /// Whether a failure is recorded, of this relay or of an earlier one.
    pub(super) has_failure: bool,
}

/// Acquires the lease when it is free, expired, or this holder's own. A lease that expires later than in twice its duration was
/// acquired while the database's clock was ahead, and is free.
pub(super) async fn acquire(
    conn: &mut PgConnection,
    holder: &str,
    ttl: Duration,
) -> Result<Option<Lease>, sqlx::Error> {
    let lease = sqlx::query_as!(
        Lease,
        r#"update relay_lease
        set holder = $1, epoch = epoch + 1, expires_at = now() + $2::interval, taken_at = now()
        where holder = $1 or expires_at < now() or expires_at > now() + 2 * $2::interval
        returning holder, epoch, last_failure is not null as "has_failure!""#,
        holder,
        interval(ttl),
    )
    .fetch_optional(conn)
    .await?;
    Ok(lease)
}

pub(super) async fn renew(conn: &mut PgConnection, lease: &Lease, ttl: Duration) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "update relay_lease
        set expires_at = now() + $3
        where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
        interval(ttl),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Records why the relay cannot publish, unless another one has taken over.
pub(super) async fn record_failure(pool: &PgPool, holder: &str, reason: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update relay_lease set last_failure = $2, last_failure_at = now() where holder = $1",
        holder,
        reason,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Deletes the recorded failure: it is over.
pub(super) async fn clear_failure(conn: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update relay_lease set last_failure = null, last_failure_at = null where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases the lease, so that another replica need not wait for its expiry.
pub(super) async fn release(pool: &PgPool, holder: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("update relay_lease set expires_at = '-infinity' where holder = $1", holder).execute(pool).await?;
    Ok(())
}

/// The relay of this service, in any replica.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RelayBody))]
pub struct LeaseState {
    /// The replica whose relay is active.
    pub holder: String,
    /// Grows with each takeover.
    pub epoch: i64,
    /// Whether the holder's lease is valid now, by the database's clock.
    pub active: bool,
    pub paused: bool,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub taken_at: Option<OffsetDateTime>,
    /// The stream's sequence at the last acknowledgement.
    pub last_sequence: i64,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_event_id: Option<Uuid>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_receipt_at: Option<OffsetDateTime>,
    /// Why the relay could not publish; null once it publishes again.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_failure: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_failure_at: Option<OffsetDateTime>,
    /// Events published again because the broker had lost them.
    pub republished: i64,
    /// Events that wait to be published.
    #[serde(rename = "lag")]
    pub pending: i64,
    /// Events that the broker refused and that wait for an operator.
    pub parked: i64,
    /// Age of the oldest event that waits, in seconds.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub oldest_pending_seconds: Option<f64>,
}

pub async fn state(pool: &PgPool) -> Result<LeaseState, sqlx::Error> {
    sqlx::query_as!(
        LeaseState,
        r#"select l.holder, l.epoch, l.expires_at > now() as "active!", l.paused, l.taken_at,
            l.last_sequence, l.last_event_id, l.last_receipt_at, l.last_failure, l.last_failure_at, l.republished,
            o.pending as "pending!", o.parked as "parked!", o.oldest_pending_seconds
        from relay_lease l
        cross join (
            select count(*) filter (where state = 'PENDING') as pending,
                count(*) filter (where state = 'PARKED') as parked,
                extract(epoch from now() - min(created_at) filter (where state = 'PENDING'))::float8
                    as oldest_pending_seconds
            from outbox
        ) o"#,
    )
    .fetch_one(pool)
    .await
}

/// Pauses or resumes the relay of this service, in any replica.
pub async fn pause(conn: &mut PgConnection, paused: bool) -> Result<(), sqlx::Error> {
    sqlx::query!("update relay_lease set paused = $1", paused).execute(conn).await?;
    Ok(())
}
