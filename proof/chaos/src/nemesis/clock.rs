//! Clocks that are wrong by an hour for a while, and then right again.

use anyhow::{Context, ensure};
use rand::Rng;
use tokio::time::sleep;

use super::Strike;

const HOUR: i64 = 3_600;

#[derive(Debug, Clone, Copy)]
pub(super) enum ClockDeed {
    /// Of one replica, or of the card processor.
    Process { hours: i64 },
    /// Of PostgreSQL: the only one that anything is decided by.
    Database { hours: i64 },
}

pub(super) async fn strike(strike: &mut Strike, deed: ClockDeed) -> anyhow::Result<()> {
    let stage = strike.stage.clone();
    let clock = match deed {
        ClockDeed::Database { .. } => stage.database_clock.as_ref(),
        ClockDeed::Process { .. } => {
            let programs = || stage.replicas.iter().map(|replica| &replica.program).chain([&stage.gateway]);
            programs().nth(strike.rng.random_range(0..programs().count())).and_then(|program| program.clock.as_ref())
        }
    };
    let clock = clock.context("no clock can be stepped: FAKETIME_LIBRARY names no library")?;
    let (ClockDeed::Process { hours } | ClockDeed::Database { hours }) = deed;
    clock.step(hours * HOUR)?;
    strike.hit();
    sleep(strike.length).await;
    let checked = if matches!(deed, ClockDeed::Database { .. }) { is_wrong(strike, hours).await } else { Ok(()) };
    clock.step(0)?;
    checked
}

async fn is_wrong(strike: &Strike, hours: i64) -> anyhow::Result<()> {
    let now: i64 = sqlx::query_scalar("select extract(epoch from clock_timestamp())::bigint")
        .fetch_one(&strike.stage.pool)
        .await?;
    let here = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let wrong = now - i64::try_from(here)?;
    ensure!((wrong - hours * HOUR).abs() < 60, "PostgreSQL's clock is wrong by {wrong} s, not by {hours} h");
    Ok(())
}
