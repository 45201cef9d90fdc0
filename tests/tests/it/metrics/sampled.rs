//! Gauges about shared tables: one replica of a service shows them.

use std::collections::BTreeSet;

use crate::prelude::*;

/// The sampled gauges for which this replica exposes values.
async fn shown_by(replica: &Replica) -> anyhow::Result<BTreeSet<String>> {
    let scrape = Scrape::of(&replica.client).await?;
    let own = order::samples().into_iter().flat_map(|source| source.gauges.iter());
    let sampled = participant::sampled().chain(own).map(|gauge| gauge.name);
    let shown = sampled.filter(|name| scrape.families.get(*name).is_some_and(|family| !family.samples.is_empty()));
    Ok(shown.map(str::to_owned).collect())
}

/// Waits until one of the two exposes all sampled gauges; returns it with the other one.
async fn reader_first(one: Replica, other: Replica) -> anyhow::Result<(Replica, Replica)> {
    let everything = participant::sampled().count() + order::samples().iter().map(|s| s.gauges.len()).sum::<usize>();
    let first = eventually(async || {
        let (by_one, by_other) = (shown_by(&one).await?.len(), shown_by(&other).await?.len());
        ensure!(by_one == everything || by_other == everything, "{by_one} and {by_other} of {everything}");
        anyhow::Ok(Some(by_one == everything))
    })
    .await?;
    Ok(if first { (one, other) } else { (other, one) })
}

#[suite_tests::test(unaudited = "it checks which replica exposes a gauge")]
async fn one_replica_exposes_the_sampled_gauges_until_it_stops() -> Test {
    let suite = TestSuite::with(Tuning { metrics_every: Duration::from_millis(100), ..Tuning::default() }).await?;
    let (one, other) = (suite.start(ORDER).await?, suite.start(ORDER).await?);
    let (reader, other) = reader_first(one, other).await?;
    let renewed = "select (extract(epoch from expires_at) * 1000000)::bigint from orders.lease where name = 'metrics'";
    for _ in 0..5 {
        let before = suite.number(renewed).await?;
        eventually(async || suite.number(renewed).await.is_ok_and(|now| now != before)).await?;
        let by_other = shown_by(&other).await?;
        ensure!(by_other.is_empty(), "both show {by_other:?}");
    }
    let before = shown_by(&reader).await?;
    reader.stop().await;
    eventually(async || shown_by(&other).await.is_ok_and(|shown| shown == before)).await
}

#[suite_tests::test(unaudited = "it checks which replica exposes a gauge")]
async fn a_replica_without_the_lease_exposes_no_sampled_gauge() -> Test {
    let (suite, order) =
        TestSuite::alone_with(Tuning { metrics_every: Duration::from_millis(100), ..Tuning::default() }, ORDER).await?;
    eventually(async || shown_by(&order).await.is_ok_and(|shown| !shown.is_empty())).await?;
    // Renewed, because a lease that ends later than in twice its time (200 ms) counts as free.
    let another_holds = "update orders.lease set holder = 'another', expires_at = now() + interval '300 milliseconds'
        where name = 'metrics'";
    eventually(async || {
        suite.execute(another_holds).await?;
        let shown = shown_by(&order).await?;
        ensure!(shown.is_empty(), "{shown:?}");
        anyhow::Ok(())
    })
    .await?;
    suite.execute("update orders.lease set expires_at = now() where name = 'metrics'").await?;
    eventually(async || shown_by(&order).await.is_ok_and(|shown| !shown.is_empty())).await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_transaction_that_has_written_and_idles_is_seen() -> Test {
    let (suite, order) =
        TestSuite::alone_with(Tuning { metrics_every: Duration::from_millis(100), ..Tuning::default() }, ORDER).await?;
    let age = async || {
        let scrape = Scrape::of(&order.client).await?;
        scrape.sum("postgres_oldest_xmin_age_seconds", &[]).context("the gauge is missing")
    };
    let mut forgotten = suite.pool.begin().await?;
    sqlx::query("insert into orders.paused_consumer (consumer) values ('none')").execute(&mut *forgotten).await?;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *forgotten).await?;
    let kept = format!("select count(*) from pg_stat_activity where pid = {pid} and backend_xmin is not null");
    ensure!(suite.number(&kept).await? == 0, "it holds a snapshot, too");
    eventually(async || age().await.is_ok_and(|age| age > 1.0)).await?;
    forgotten.rollback().await?;
    eventually(async || age().await.is_ok_and(|age| age < 1.0)).await
}
