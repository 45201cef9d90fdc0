//! The cost of telemetry, by turns on suites without it and with a collector and a Prometheus. Also the cost of the programs as
//! users get them: all traces, and armable faults.

use anyhow::ensure;

use super::{by_turns, ensure_clean, ratio};
use crate::{
    figure::Figure,
    sink::Sink,
    suite::{MeasuredSuite, services},
};

const NAMES: [&str; 3] = ["telemetry off", "1 % of traces", "as users get it"];

pub(super) async fn measure(sampled: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let off = sampled.beside("off").with_collector(None);
    off.fresh_suite().await?;
    let shipped = sampled.beside("shipped").with_collector(Some(Sink::start().await?));
    shipped.fresh_suite().await?;
    let traced = [&["gateway_simulator"][..], &services()].concat();
    let settings =
        [("TRACE_SAMPLE_RATIO", "1"), ("SUITE_BIN_DIR", shipped.shipped.as_str()), ("FAULTS_ENABLED", "true")];
    shipped.service("restart", &traced, &settings).await?;

    let suites = [&off, sampled, &shipped];
    let received = || [sampled, &shipped].map(|suite| suite.collector.as_ref().map_or(0, |sink| sink.bytes()));
    let before = received();
    let (measured, mut figures) = by_turns(sampled.rounds(9), NAMES, async |variant| {
        let _scraper = if variant > 0 { Some(suites[variant].scraper().await?) } else { None };
        suites[variant].a_turn(&[]).await
    })
    .await?;
    let came = received();
    ensure!(before[0] < came[0] && came[0] - before[0] < (came[1] - before[1]) / 5, "spans: {before:?}, then {came:?}");
    ensure_clean(&off, NAMES[0]).await?;
    ensure_clean(&shipped, NAMES[2]).await?;
    figures.extend([
        ratio("1 % of traces / off", &measured[1], &measured[0]).at_least(0.9),
        // The programs of all other figures have 1 % of traces.
        ratio("as users get it / 1 % of traces", &measured[2], &measured[1]).at_least(0.9),
    ]);
    Ok(figures)
}
