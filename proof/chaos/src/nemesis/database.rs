//! A database that crashes, terminates sessions, or is blocked by other sessions.

use std::time::Duration;

use anyhow::ensure;
use rand::{Rng, seq::SliceRandom};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, sleep_until};

use super::Strike;

const TOO_MANY_CONNECTIONS: &str = "53300";

/// The immediate stop: every session ends as in a crash.
pub(super) async fn stop(strike: &mut Strike) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let mut postgres = testbed.postgres.lock().await;
    postgres.stop_immediate().await?;
    strike.hit();
    sleep(strike.length).await;
    strike.cures();
    postgres.start_again().await
}

/// Holds an old snapshot. Other nemeses may break the database and with it the transaction: then a new one begins.
pub(super) async fn long_transaction(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        if hold_snapshot(strike, end).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    }
    ensure!(strike.faults > 0, "no snapshot could be held");
    Ok(())
}

async fn hold_snapshot(strike: &mut Strike, end: Instant) -> anyhow::Result<()> {
    let mut connection = strike.run.testbed.pool.acquire().await?.detach();
    let mut transaction = connection.begin_with("begin isolation level repeatable read").await?;
    sqlx::query("select count(*), pg_current_xact_id() from saga.saga_instance").execute(&mut *transaction).await?;
    strike.hit();
    while Instant::now() < end {
        sleep_until(end.min(Instant::now() + Duration::from_secs(1))).await;
        sqlx::query("select 1").execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

/// Terminates one session of a service after the other.
pub(super) async fn terminate(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        terminate_one(strike).await?;
        sleep(Duration::from_millis(strike.rng.random_range(200..800))).await;
    }
    Ok(())
}

async fn terminate_one(strike: &mut Strike) -> anyhow::Result<()> {
    let ended: Option<bool> = sqlx::query_scalar(
        "select pg_terminate_backend(pid)
        from pg_stat_activity
        where usename like '%\\_service'
        order by random()
        limit 1",
    )
    .fetch_optional(&strike.run.testbed.pool)
    .await?;
    if ended == Some(true) {
        strike.hit();
    }
    Ok(())
}

/// Occupies every free connection, and each one that a service loses.
pub(super) async fn hog_connections(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    let mut held = Vec::new();
    while Instant::now() < end {
        match PgConnection::connect(&strike.run.testbed.database_url).await {
            Ok(connection) => held.push(connection),
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code());
                ensure!(code.as_deref() == Some(TOO_MANY_CONNECTIONS), "the server is not full: {error}");
                terminate_one(strike).await?;
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    ensure!(strike.faults > 0, "the server was never full");
    drop(held);
    Ok(())
}

/// Locks tables that every saga writes.
pub(super) async fn hog_locks(strike: &mut Strike) -> anyhow::Result<()> {
    let mut held = [
        "lock table inventory.product in exclusive mode",
        "lock table orders.customer_order in exclusive mode",
        "lock table saga.saga_instance in exclusive mode",
        "lock table payment.payment in exclusive mode",
    ];
    held.shuffle(&mut strike.rng);
    let end = Instant::now() + strike.length;
    let mut connection = strike.run.testbed.pool.acquire().await?.detach();
    for lock in held.into_iter().cycle().take_while(|_| Instant::now() < end) {
        let mut transaction = connection.begin().await?;
        sqlx::query(lock).execute(&mut *transaction).await?;
        strike.hit();
        sleep(Duration::from_millis(strike.rng.random_range(500..3_000))).await;
        transaction.rollback().await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
