//! A database that crashes, throws sessions out, or is kept busy by strangers.

use std::time::Duration;

use rand::Rng;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::Strike;

#[derive(Debug, Clone, Copy)]
pub(super) enum DatabaseDeed {
    /// The immediate stop: every session ends as in a crash.
    Stop,
    /// One session of a service after the other is ended.
    Terminate,
    /// A stranger takes every connection that is left.
    HogConnections,
    /// A stranger locks what everybody has to write.
    HogLocks,
    /// A stranger holds an old snapshot.
    LongTransaction,
}

pub(super) async fn strike(strike: &mut Strike, deed: DatabaseDeed) -> anyhow::Result<()> {
    match deed {
        DatabaseDeed::Stop => {
            let stage = strike.stage.clone();
            let mut postgres = stage.postgres.lock().await;
            postgres.stop_immediate().await?;
            strike.hit();
            sleep(strike.length).await;
            strike.cures();
            postgres.start_again().await
        }
        DatabaseDeed::Terminate => terminate(strike).await,
        DatabaseDeed::HogConnections => hog_connections(strike).await,
        DatabaseDeed::HogLocks => hog_locks(strike).await,
        DatabaseDeed::LongTransaction => {
            let mut connection = strike.stage.pool.acquire().await?.detach();
            let mut transaction = connection.begin_with("begin isolation level repeatable read").await?;
            sqlx::query("select count(*), pg_current_xact_id() from saga.saga_instance")
                .execute(&mut *transaction)
                .await?;
            strike.hit();
            sleep(strike.length).await;
            Ok(transaction.commit().await?)
        }
    }
}

async fn terminate(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        let ended: Option<bool> = sqlx::query_scalar(
            "select pg_terminate_backend(pid)
            from pg_stat_activity
            where usename like '%\\_service'
            order by random()
            limit 1",
        )
        .fetch_optional(&strike.stage.pool)
        .await?;
        if ended == Some(true) {
            strike.hit();
        }
        sleep(Duration::from_millis(strike.rng.random_range(200..800))).await;
    }
    Ok(())
}

async fn hog_connections(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    let mut held = Vec::new();
    while Instant::now() < end {
        match PgConnection::connect(&strike.stage.database_url).await {
            Ok(connection) => held.push(connection),
            // There are none left. Those that a service gives up are taken, too.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
    strike.hit();
    drop(held);
    Ok(())
}

async fn hog_locks(strike: &mut Strike) -> anyhow::Result<()> {
    const HELD: [&str; 4] = [
        "lock table inventory.product in exclusive mode",
        "lock table orders.customer_order in exclusive mode",
        "lock table saga.saga_instance in exclusive mode",
        "lock table payment.payment in exclusive mode",
    ];
    let end = Instant::now() + strike.length;
    let mut connection = strike.stage.pool.acquire().await?.detach();
    while Instant::now() < end {
        let mut transaction = connection.begin().await?;
        sqlx::query(HELD[strike.rng.random_range(0..HELD.len())]).execute(&mut *transaction).await?;
        strike.hit();
        sleep(Duration::from_millis(strike.rng.random_range(500..3_000))).await;
        transaction.rollback().await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
