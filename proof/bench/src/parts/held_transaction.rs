//! Throughput while an idle transaction blocks vacuum. One load with such a transaction, compared with the same load on another
//! fresh suite without it, so that both contain the checkpoints and vacuums that come with a database's age.

use std::{ops::Range, time::Duration};

use anyhow::ensure;
use sqlx::Connection;
use tokio::time::sleep;

use crate::{figure::Figure, suite::MeasuredSuite};

/// Seconds of the load: the transaction is held from `begin` to `end`, and the load ends with `last`.
struct Schedule {
    begin: u64,
    end: u64,
    last: u64,
}

/// The window of "five seconds" figures.
const FEW: u64 = 5;

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let schedule =
        if suite.quick { Schedule { begin: 2, end: 10, last: 18 } } else { Schedule { begin: 5, end: 65, last: 85 } };
    let usual = ended(suite, &schedule).await?;
    ensure!(suite.audit().await?, "the audit is not clean before any transaction is held");
    suite.fresh_suite().await?;
    let (load, ()) = tokio::try_join!(ended(suite, &schedule), hold(suite, &schedule))?;
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

/// The number of sagas that ended in each second of the load.
async fn ended(suite: &MeasuredSuite, schedule: &Schedule) -> anyhow::Result<Vec<u32>> {
    let load = suite.saturate(Duration::ZERO, Duration::from_secs(schedule.last), &[]).await?;
    ensure!(load.ended_in_second.len() as u64 >= schedule.last, "the load ended early");
    Ok(load.ended_in_second)
}

async fn hold(suite: &MeasuredSuite, schedule: &Schedule) -> anyhow::Result<()> {
    let mut connection = suite.superuser().await?;
    let age = "select extract(epoch from clock_timestamp() - min(started_at))::float8 from saga.saga_instance";
    let age = loop {
        match sqlx::query_scalar::<_, Option<f64>>(age).fetch_one(&mut connection).await? {
            Some(age) => break age,
            None => sleep(Duration::from_millis(20)).await,
        }
    };
    sleep(Duration::from_secs_f64((schedule.begin as f64 - age).max(0.0))).await;
    let mut held = connection.begin_with("begin isolation level repeatable read").await?;
    // With a snapshot and a transaction id it holds back everything that a transaction can hold back.
    sqlx::query("select pg_current_xact_id(), (select count(*) from saga.saga_instance)").execute(&mut *held).await?;
    sleep(Duration::from_secs(schedule.end - schedule.begin)).await;
    Ok(held.rollback().await?)
}

fn worst(ended: &[u32], seconds: &Range<u64>) -> f64 {
    few(seconds).map(|few| a_second(ended, &few)).reduce(f64::min).unwrap_or_default()
}

/// The worst ratio of two windows at the same age of the database.
fn worst_compared(ended: &[u32], without: &[u32], seconds: &Range<u64>) -> f64 {
    few(seconds).map(|few| a_second(ended, &few) / a_second(without, &few)).reduce(f64::min).unwrap_or_default()
}

/// Every window of `FEW` consecutive seconds.
fn few(seconds: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    (seconds.start..=seconds.end.saturating_sub(FEW)).map(|first| first..first + FEW)
}

/// Sagas ended per second in this range.
fn a_second(ended: &[u32], seconds: &Range<u64>) -> f64 {
    let number = |at: u64| ended.get(at as usize).copied().map_or(0.0, f64::from);
    seconds.clone().map(number).sum::<f64>() / (seconds.end - seconds.start) as f64
}
