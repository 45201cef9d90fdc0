//! Clocks that are wrong by an hour for a while.

use anyhow::{Context, ensure};
use rand::Rng;
use tokio::time::sleep;

use super::Strike;
use crate::clock::Clock;

const HOUR: i64 = 3_600;

/// Of one replica, or of the card processor.
pub(super) async fn process(strike: &mut Strike, hours: i64) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let programs = || testbed.replicas.iter().map(|replica| &replica.program).chain([&testbed.gateway]);
    let program = programs().nth(strike.rng.random_range(0..programs().count()));
    let clock = step(program.and_then(|program| program.clock.as_ref()), strike, hours).await?;
    clock.step(0)
}

/// Of PostgreSQL.
pub(super) async fn database(strike: &mut Strike, hours: i64) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let clock = step(testbed.database_clock.as_ref(), strike, hours).await?;
    let checked = is_wrong(strike, hours).await;
    clock.step(0)?;
    checked
}

/// Steps the clock and waits. The clock is still wrong afterwards.
async fn step<'c>(clock: Option<&'c Clock>, strike: &mut Strike, hours: i64) -> anyhow::Result<&'c Clock> {
    let clock = clock.context("no clock can be stepped: FAKETIME_LIBRARY names no library")?;
    clock.step(hours * HOUR)?;
    strike.hit();
    sleep(strike.length).await;
    Ok(clock)
}

async fn is_wrong(strike: &Strike, hours: i64) -> anyhow::Result<()> {
    let now: i64 = sqlx::query_scalar("select extract(epoch from clock_timestamp())::bigint")
        .fetch_one(&strike.run.testbed.pool)
        .await?;
    let here = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let wrong = now - i64::try_from(here)?;
    ensure!((wrong - hours * HOUR).abs() < 60, "PostgreSQL's clock is wrong by {wrong} s, not by {hours} h");
    Ok(())
}
