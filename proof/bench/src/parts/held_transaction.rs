//! Somebody begins a transaction and goes for a coffee: nothing that was deleted since can be cleaned up.

use std::time::Duration;

use sqlx::Connection;

use crate::{figure::Figure, load::Load, stage::Stage};

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let (warm_up, time) = (stage.time(3, 2), stage.time(20, 4));
    let before = stage.saturate(warm_up, time, &[]).await?;
    let mut connection = stage.superuser().await?;
    let mut held = connection.begin_with("begin isolation level repeatable read").await?;
    // A snapshot, and an id of its own: it holds back whatever a transaction can hold back.
    sqlx::query("select pg_current_xact_id(), (select count(*) from saga.saga_instance)").execute(&mut *held).await?;
    let during = stage.saturate(Duration::from_secs(1), stage.time(60, 6), &[]).await?;
    held.rollback().await?;
    let after = stage.saturate(Duration::from_secs(1), time, &[]).await?;
    let usual = before.ended_per_second;
    Ok(vec![
        Figure::new("sagas, before", usual, "1/s"),
        Figure::new("sagas, while it is held", during.ended_per_second, "1/s"),
        Figure::new("sagas, in the worst five seconds of it", worst(&during), "1/s"),
        Figure::new("sagas, after", after.ended_per_second, "1/s"),
        Figure::new("held / before", during.ended_per_second / usual, "").at_least(0.8),
        Figure::new("worst five seconds / before", worst(&during) / usual, "").at_least(0.8),
        Figure::new("after / before", after.ended_per_second / usual, "").at_least(0.8),
    ])
}

/// Ends a second in the worst five seconds between the first one and the last ones, which have less to do.
fn worst(load: &Load) -> f64 {
    const SPAN: usize = 5;
    let seconds = &load.ended_in_second;
    let inner = seconds.get(1..seconds.len().saturating_sub(2)).unwrap_or_default();
    let sums = inner
        .windows(SPAN.min(inner.len().max(1)))
        .map(|window| window.iter().sum::<u32>() as f64 / window.len() as f64);
    sums.reduce(f64::min).unwrap_or_default()
}
