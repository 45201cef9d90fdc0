//! A cluster against single servers, all on this machine: the price of three replicas of each stream and of two synchronous
//! standbys. On machines of their own the standbys and replicas would not take the processors of the rest. One after the other,
//! because an idle cluster beside the single servers halves their throughput; these are measured before and after each.

use anyhow::ensure;

use crate::{figure::Figure, suite::MeasuredSuite};

/// nats-server writes each message, and syncs the file every two minutes; or it syncs after each message.
const ORDER: [(&str, Option<&str>); 5] = [
    ("single servers", None),
    ("cluster", Some("2m")),
    ("single servers", None),
    ("cluster, sync_interval: always", Some("always")),
    ("single servers", None),
];

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let (mut figures, mut sagas) = (Vec::new(), Vec::new());
    for (place, (name, sync)) in ORDER.into_iter().enumerate() {
        match sync {
            Some(sync) => suite.fresh_cluster(sync).await?,
            None => suite.fresh_suite().await?,
        }
        let saturated = suite.saturate(suite.time(5, 2), suite.time(20, 5), &[]).await?;
        sagas.push(saturated.ended_per_second);
        if place < 2 || sync.is_some() {
            for rate in ["10", "100"] {
                let load = suite.load(suite.time(3, 1), suite.time(20, 4), &["--rate", rate, "--follow", "0"]).await?;
                for (percentile, ms) in [("p50", load.saga.p50_ms), ("p99", load.saga.p99_ms)] {
                    figures.push(Figure::new(format!("{name}, {rate}/s, order to end, {percentile}"), ms, "ms"));
                }
            }
        }
        ensure!(suite.audit().await?, "{name}: the audit is not clean");
    }
    let single: Vec<f64> = sagas.iter().copied().step_by(2).collect();
    figures.push(Figure::median_of("single servers, sagas", &single, "1/s"));
    for (around, place) in single.windows(2).zip([1, 3]) {
        figures.push(Figure::new(format!("{}, sagas", ORDER[place].0), sagas[place], "1/s"));
        let ratios: Vec<f64> = around.iter().map(|single| sagas[place] / single).collect();
        figures.push(Figure::ratio_of(format!("{} / single servers", ORDER[place].0), &ratios));
    }
    Ok(figures)
}
