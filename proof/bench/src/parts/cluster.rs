//! A cluster against single servers, all on this machine: the price of three replicas of each stream and of two synchronous
//! standbys. On machines of their own the standbys and replicas would not take the processors of the rest.

use super::{by_turns, ensure_clean, ratio};
use crate::{figure::Figure, suite::MeasuredSuite};

const NAMES: [&str; 3] = ["single servers", "cluster", "cluster, sync_interval: always"];

pub(super) async fn measure(single: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let (cluster, always) = (single.beside("cluster"), single.beside("always"));
    // nats-server writes each message, and syncs the file every two minutes; or it syncs after each message.
    cluster.fresh_cluster("2m").await?;
    always.fresh_cluster("always").await?;
    let _scrapers = [cluster.scraper().await?, always.scraper().await?];
    let suites = [single, &cluster, &always];
    let (measured, mut figures) =
        by_turns(single.rounds(6), NAMES, async |variant| suites[variant].a_turn(&[]).await).await?;
    for variant in 1..NAMES.len() {
        figures.push(ratio(&format!("{} / single servers", NAMES[variant]), &measured[variant], &measured[0]));
    }
    for (turn, rate) in ["10", "100"].into_iter().enumerate() {
        for variant in 0..NAMES.len() {
            let variant = (variant + turn) % NAMES.len();
            let (name, suite) = (NAMES[variant], suites[variant]);
            let load = suite.load(suite.time(3, 1), suite.time(20, 4), &["--rate", rate, "--follow", "0"]).await?;
            for (percentile, ms) in [("p50", load.saga.p50_ms), ("p99", load.saga.p99_ms)] {
                figures.push(Figure::new(format!("{name}, {rate}/s, order to end, {percentile}"), ms, "ms"));
            }
        }
    }
    ensure_clean(&cluster, NAMES[1]).await?;
    ensure_clean(&always, NAMES[2]).await?;
    Ok(figures)
}
