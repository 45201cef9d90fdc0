//! Somebody begins a transaction and goes for a coffee: nothing that was deleted since can be cleaned up. One load during
//! which that happens, against the same load on another fresh suite without it: checkpoints and vacuums, which come with
//! a database's age, are in both.

use std::{ops::Range, time::Duration};

use anyhow::ensure;
use sqlx::Connection;
use tokio::time::sleep;

use crate::{figure::Figure, stage::Stage};

/// The transaction is held from the first of these seconds to the second, and the load ends with the third.
struct Schedule {
    begin: u64,
    end: u64,
    last: u64,
}

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let schedule =
        if stage.quick { Schedule { begin: 2, end: 10, last: 18 } } else { Schedule { begin: 5, end: 65, last: 85 } };
    let usual = ended(stage, &schedule).await?;
    ensure!(stage.audit().await?, "the audit is not clean before any transaction is held");
    stage.fresh_suite().await?;
    let (load, held) = tokio::join!(ended(stage, &schedule), hold(stage, &schedule));
    let load = held.and(load)?;
    // The load generator needs a moment to begin, so the seconds in which it changes are nobody's.
    let during = schedule.begin + 1..schedule.end - 1;
    let after = schedule.end + 1..schedule.last - 1;
    let at_once = after.start..after.start + FEW;
    let ratio = |rate: f64, seconds: &Range<u64>| rate / a_second(&usual, seconds);
    Ok(vec![
        Figure::new("sagas, without it", a_second(&usual, &during), "1/s"),
        Figure::new("sagas, while it is held", a_second(&load, &during), "1/s"),
        Figure::new("sagas, in the worst five seconds of it", worst(&load, &during), "1/s"),
        Figure::new("sagas, in the five seconds after it", a_second(&load, &at_once), "1/s"),
        Figure::new("sagas, without it, later", a_second(&usual, &after), "1/s"),
        Figure::new("sagas, after it", a_second(&load, &after), "1/s"),
        Figure::new("held / without", ratio(a_second(&load, &during), &during), "").at_least(0.8),
        Figure::new("worst five seconds / without", ratio(worst(&load, &during), &during), "").at_least(0.8),
        Figure::new("five seconds after it / without", ratio(a_second(&load, &at_once), &during), "").at_least(0.8),
        Figure::new("after it / without, later", ratio(a_second(&load, &after), &after), "").at_least(0.8),
    ])
}

/// How many sagas ended in each second of the load.
async fn ended(stage: &Stage, schedule: &Schedule) -> anyhow::Result<Vec<u32>> {
    Ok(stage.saturate(Duration::ZERO, Duration::from_secs(schedule.last), &[]).await?.ended_in_second)
}

async fn hold(stage: &Stage, schedule: &Schedule) -> anyhow::Result<()> {
    sleep(Duration::from_secs(schedule.begin)).await;
    let mut connection = stage.superuser().await?;
    let mut held = connection.begin_with("begin isolation level repeatable read").await?;
    // A snapshot, and an id of its own: it holds back whatever a transaction can hold back.
    sqlx::query("select pg_current_xact_id(), (select count(*) from saga.saga_instance)").execute(&mut *held).await?;
    sleep(Duration::from_secs(schedule.end - schedule.begin)).await;
    Ok(held.rollback().await?)
}

/// How many seconds are a few.
const FEW: u64 = 5;

fn worst(ended: &[u32], seconds: &Range<u64>) -> f64 {
    let few = (seconds.start..=seconds.end.saturating_sub(FEW)).map(|first| a_second(ended, &(first..first + FEW)));
    few.reduce(f64::min).unwrap_or_default()
}

/// Ends a second in these seconds.
fn a_second(ended: &[u32], seconds: &Range<u64>) -> f64 {
    let number = |at: u64| ended.get(at as usize).copied().map_or(0.0, f64::from);
    seconds.clone().map(number).sum::<f64>() / (seconds.end - seconds.start) as f64
}
