//! The relay's lease: who is the active one, in which epoch, and what the broker acknowledged last.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::lease::interval;

/// A lease that is held.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) holder: String,
    /// Grows with every takeover; every write of the relay is guarded by it.
    pub(super) epoch: i64,
}

/// Takes the lease when it is free, expired, or this holder's own. One that ends later than in twice its time was taken when
/// the database's clock was ahead, and is free.
pub(super) async fn acquire(
    conn: &mut PgConnection,
    holder: &str,
    ttl: Duration,
) -> Result<Option<Lease>, sqlx::Error> {
    let epoch = sqlx::query_scalar!(
        "update relay_lease
        set holder = $1, epoch = epoch + 1, expires_at = now() + $2::interval, taken_at = now()
        where holder = $1 or expires_at < now() or expires_at > now() + 2 * $2::interval
        returning epoch",
        holder,
        interval(ttl),
    )
    .fetch_optional(conn)
    .await?;
    Ok(epoch.map(|epoch| Lease { holder: holder.to_owned(), epoch }))
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

/// Gives the lease back, so that another replica need not wait for it to expire.
pub(super) async fn release(pool: &PgPool, holder: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("update relay_lease set expires_at = '-infinity' where holder = $1", holder).execute(pool).await?;
    Ok(())
}

/// The relay of a service as an operator sees it.
#[derive(Debug, Clone)]
pub struct LeaseState {
    pub holder: String,
    pub epoch: i64,
    /// Whether the holder's lease is still valid, by the database's clock.
    pub active: bool,
    pub paused: bool,
    pub taken_at: Option<OffsetDateTime>,
    pub stream_epoch: i64,
    pub last_sequence: i64,
    pub last_event_id: Option<Uuid>,
    pub last_receipt_at: Option<OffsetDateTime>,
    pub republished: i64,
    pub pending: i64,
    pub parked: i64,
    pub oldest_pending_seconds: Option<f64>,
}

pub async fn state(pool: &PgPool) -> Result<LeaseState, sqlx::Error> {
    sqlx::query_as!(
        LeaseState,
        r#"select l.holder, l.epoch, l.expires_at > now() as "active!", l.paused, l.taken_at, l.stream_epoch,
            l.last_sequence, l.last_event_id, l.last_receipt_at, l.republished,
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

/// Pauses or resumes the relay of this service, whichever replica's it is.
pub async fn pause(conn: &mut PgConnection, paused: bool) -> Result<(), sqlx::Error> {
    sqlx::query!("update relay_lease set paused = $1", paused).execute(conn).await?;
    Ok(())
}
