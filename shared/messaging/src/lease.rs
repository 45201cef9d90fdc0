//! Leases for work that only one replica may do at a time, and the list of live replicas. All times are the database's.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::interval;

/// Acquires or renews the lease `name` for `holder`; false when another replica holds it. A lease that expires later than in
/// twice its duration was acquired while the database's clock was ahead, and is free.
pub async fn hold(conn: &mut PgConnection, name: &str, holder: &str, ttl: Duration) -> Result<bool, sqlx::Error> {
    let held = sqlx::query_scalar!(
        r#"insert into lease as l (name, holder, expires_at)
        values ($1, $2, now() + $3::interval)
        on conflict (name) do update
        set holder = excluded.holder, expires_at = excluded.expires_at
        where l.holder = excluded.holder or l.expires_at < now() or l.expires_at > now() + 2 * $3::interval
        returning true as "held!""#,
        name,
        holder,
        interval(ttl),
    )
    .fetch_optional(conn)
    .await?;
    Ok(held.is_some())
}

/// Releases the lease, so that another replica need not wait for its expiry.
pub async fn release(conn: &mut PgConnection, name: &str, holder: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from lease where name = $1 and holder = $2", name, holder).execute(conn).await?;
    Ok(())
}

/// Announces a replica as live for the duration of `ttl`.
pub async fn announce_replica(conn: &mut PgConnection, replica: &str, ttl: Duration) -> Result<(), sqlx::Error> {
    hold(conn, &presence(replica), replica, ttl).await.map(drop)
}

/// Withdraws the announcement of a replica.
pub async fn withdraw_replica(conn: &mut PgConnection, replica: &str) -> Result<(), sqlx::Error> {
    release(conn, &presence(replica), replica).await
}

/// The live replicas of this service.
pub async fn replicas(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!("select holder from lease where starts_with(name, 'replica ') and expires_at > now()")
        .fetch_all(pool)
        .await
}

fn presence(replica: &str) -> String {
    format!("replica {replica}")
}
