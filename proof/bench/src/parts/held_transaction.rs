//! Somebody begins a transaction and goes for a coffee: nothing that was deleted since can be cleaned up. One load during
//! which that happens, against the same load on another fresh suite without it: checkpoints and vacuums, which come with
//! a database's age, are in both.

use std::{ops::Range, time::Duration};

use anyhow::ensure;
use sqlx::Connection;
use tokio::time::sleep;

use crate::{figure::Figure, stage::Stage};

/// The transaction is held from the first of these seconds of the load to the second, and the load ends with the third.
struct Schedule {
    begin: u64,
    end: u64,
    last: u64,
}

/// How many seconds are a few.
const FEW: u64 = 5;

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let schedule =
        if stage.quick { Schedule { begin: 2, end: 10, last: 18 } } else { Schedule { begin: 5, end: 65, last: 85 } };
    let usual = ended(stage, &schedule).await?;
    ensure!(stage.audit().await?, "the audit is not clean before any transaction is held");
    stage.fresh_suite().await?;
    let (load, ()) = tokio::try_join!(ended(stage, &schedule), hold(stage, &schedule))?;
    let during = schedule.begin + 1..schedule.end;
    let at_once = schedule.end..schedule.end + FEW;
    let after = schedule.end..schedule.last - 1;
    let compared = |seconds: &Range<u64>| a_second(&load, seconds) / a_second(&usual, seconds);
    Ok(vec![
        Figure::new("sagas, without it", a_second(&usual, &during), "1/s"),
        Figure::new("sagas, without it, in the worst five seconds", worst(&usual, &during), "1/s"),
        Figure::new("sagas, while it is held", a_second(&load, &during), "1/s"),
        Figure::new("sagas, in the worst five seconds of it", worst(&load, &during), "1/s"),
        Figure::new("sagas, after it", a_second(&load, &after), "1/s"),
        Figure::new("held / without", compared(&during), "").at_least(0.8),
        Figure::new("worst five seconds / without", worst(&load, &during) / a_second(&usual, &during), "")
            .at_least(0.8),
        Figure::new("worst five seconds / the same without", worst_compared(&load, &usual, &during), ""),
        Figure::new("first five seconds after it / without", compared(&at_once), "").at_least(0.8),
        Figure::new("after it / without", compared(&after), "").at_least(0.8),
    ])
}

/// How many sagas ended in each second of the load.
async fn ended(stage: &Stage, schedule: &Schedule) -> anyhow::Result<Vec<u32>> {
    let load = stage.saturate(Duration::ZERO, Duration::from_secs(schedule.last), &[]).await?;
    ensure!(load.ended_in_second.len() as u64 >= schedule.last, "the load ended early");
    Ok(load.ended_in_second)
}

async fn hold(stage: &Stage, schedule: &Schedule) -> anyhow::Result<()> {
    let mut connection = stage.superuser().await?;
    let age = "select extract(epoch from clock_timestamp() - min(started_at))::float8 from saga.saga_instance";
    let age = loop {
        match sqlx::query_scalar::<_, Option<f64>>(age).fetch_one(&mut connection).await? {
            Some(age) => break age,
            None => sleep(Duration::from_millis(20)).await,
        }
    };
    sleep(Duration::from_secs_f64((schedule.begin as f64 - age).max(0.0))).await;
    let mut held = connection.begin_with("begin isolation level repeatable read").await?;
    // A snapshot, and an id of its own: it holds back whatever a transaction can hold back.
    sqlx::query("select pg_current_xact_id(), (select count(*) from saga.saga_instance)").execute(&mut *held).await?;
    sleep(Duration::from_secs(schedule.end - schedule.begin)).await;
    Ok(held.rollback().await?)
}

fn worst(ended: &[u32], seconds: &Range<u64>) -> f64 {
    few(seconds).map(|few| a_second(ended, &few)).reduce(f64::min).unwrap_or_default()
}

/// At the same age.
fn worst_compared(ended: &[u32], without: &[u32], seconds: &Range<u64>) -> f64 {
    few(seconds).map(|few| a_second(ended, &few) / a_second(without, &few)).reduce(f64::min).unwrap_or_default()
}

/// Every few seconds in a row.
fn few(seconds: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    (seconds.start..=seconds.end.saturating_sub(FEW)).map(|first| first..first + FEW)
}

/// Ends a second in these seconds.
fn a_second(ended: &[u32], seconds: &Range<u64>) -> f64 {
    let number = |at: u64| ended.get(at as usize).copied().map_or(0.0, f64::from);
    seconds.clone().map(number).sum::<f64>() / (seconds.end - seconds.start) as f64
}
