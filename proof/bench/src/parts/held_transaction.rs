//! Throughput while an idle transaction blocks vacuum. Two loads with such a transaction are compared with two without it, each
//! on a fresh suite, so that all contain the checkpoints and vacuums that come with a database's age.

use std::{ops::Range, time::Duration};

use anyhow::ensure;
use sqlx::Connection;
use tokio::time::sleep;

use super::on_fresh_suites;
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
    let [without, with] =
        on_fresh_suites(suite, ["sagas in each second, without", "held"], async |variant| match variant {
            0 => ended(suite, &schedule).await,
            _ => Ok(tokio::try_join!(ended(suite, &schedule), hold(suite, &schedule))?.0),
        })
        .await?;
    let during = schedule.begin + 1..schedule.end;
    let at_once = schedule.end..schedule.end + FEW;
    let after = schedule.end..schedule.last - 1;
    let held = |seconds: &Range<u64>| a_second(&with, seconds);
    let without = |seconds: &Range<u64>| a_second(&without, seconds);
    let compared = |seconds: &Range<u64>| held(seconds) / without(seconds);
    Ok(vec![
        Figure::new("sagas, without it", without(&during), "1/s"),
        Figure::new("sagas, without it, in the worst five seconds", worst(&during, without), "1/s"),
        Figure::new("sagas, while it is held", held(&during), "1/s"),
        Figure::new("sagas, in the worst five seconds of it", worst(&during, held), "1/s"),
        Figure::new("sagas, after it", held(&after), "1/s"),
        Figure::new("held / without", compared(&during), "").at_least(0.8),
        Figure::new("worst five seconds / without", worst(&during, held) / without(&during), "").at_least(0.85),
        // Of two windows at the same age of the database.
        Figure::new("worst five seconds / the same without", worst(&during, compared), ""),
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

/// The lowest figure of any `FEW` consecutive seconds.
fn worst(seconds: &Range<u64>, figure: impl Fn(&Range<u64>) -> f64) -> f64 {
    let windows = (seconds.start..=seconds.end.saturating_sub(FEW)).map(|first| first..first + FEW);
    windows.map(|few| figure(&few)).reduce(f64::min).unwrap_or_default()
}

/// Sagas ended per second in this range, the mean of the loads.
fn a_second(loads: &[Vec<u32>], seconds: &Range<u64>) -> f64 {
    let ended = loads.iter().flat_map(|load| load.get(seconds.start as usize..seconds.end as usize)).flatten();
    f64::from(ended.sum::<u32>()) / ((seconds.end - seconds.start) as f64 * loads.len() as f64)
}
