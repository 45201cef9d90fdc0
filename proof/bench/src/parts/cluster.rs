//! A cluster against single servers, all on this machine: the price of three replicas of each stream and of two synchronous
//! standbys. On machines of their own the standbys and replicas would not take the processors of the rest.

use anyhow::ensure;

use super::ratio;
use crate::{figure::Figure, suite::MeasuredSuite};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut single = Vec::new();
    // nats-server writes each message, and syncs the file every two minutes; or it syncs after each message.
    for (name, sync) in
        [("single servers", None), ("cluster", Some("2m")), ("cluster, sync_interval: always", Some("always"))]
    {
        match sync {
            Some(sync) => suite.fresh_cluster(sync).await?,
            None => suite.fresh_suite().await?,
        }
        let saturated = suite.saturate(suite.time(5, 2), suite.time(30, 5), &[]).await?;
        let sagas = vec![saturated.ended_per_second];
        figures.push(Figure::median_of(format!("{name}, sagas"), &sagas, "1/s"));
        if single.is_empty() {
            single = sagas
        } else {
            figures.push(ratio("  / single servers", &sagas, &single))
        }
        for rate in ["10", "100"] {
            let load = suite.load(suite.time(3, 1), suite.time(20, 4), &["--rate", rate, "--follow", "0"]).await?;
            for (percentile, ms) in [("p50", load.saga.p50_ms), ("p99", load.saga.p99_ms)] {
                figures.push(Figure::new(format!("{name}, {rate}/s, order to end, {percentile}"), ms, "ms"));
            }
        }
        ensure!(suite.audit().await?, "{name}: the audit is not clean");
    }
    Ok(figures)
}
