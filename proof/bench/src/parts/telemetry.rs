//! What telemetry costs: the same load by turns without it, and with a collector and a Prometheus. And what users get
//! costs: all traces, and faults that can be armed.

use anyhow::{Context, ensure};

use super::{by_turns, ratio};
use crate::{
    figure::Figure,
    scraper::Scraper,
    sink::Sink,
    stage::{Stage, services},
};

/// How telemetry is set: the share of traces that is sampled, if spans are collected at all.
const NAMES: [&str; 4] = ["telemetry off", "1 % of traces", "all traces", "as users get it"];
const SAMPLED: [Option<&str>; 4] = [None, Some("0.01"), Some("1"), Some("1")];
/// The one with programs that were built with faults.
const AS_SHIPPED: usize = 3;

/// What sends spans.
fn traced() -> Vec<&'static str> {
    [&["gateway_simulator"][..], &services()].concat()
}

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let sink = stage.collector.as_ref().context("there is no collector")?;
    let measured = by_turns(stage.rounds(7), NAMES, async |variant| with(stage, sink, variant).await).await?;
    stage.service("restart", &traced(), &[]).await?;
    let [off, few, all, shipped] = &measured;
    Ok(vec![
        Figure::median_of("sagas, telemetry off", off, "1/s"),
        Figure::median_of("sagas, 1 % of traces", few, "1/s"),
        Figure::median_of("sagas, all traces", all, "1/s"),
        ratio("1 % of traces / off", few, off).at_least(0.9),
        // Without a target: it is for looking closely.
        ratio("all traces / off", all, off),
        Figure::median_of("sagas, as users get it", shipped, "1/s"),
        ratio("as users get it / off", shipped, off),
    ])
}

async fn with(stage: &Stage, sink: &Sink, variant: usize) -> anyhow::Result<f64> {
    let sampled = SAMPLED[variant];
    let scraper = sampled.map(|_| Scraper::start(stage)).transpose()?;
    let url = if sampled.is_some() { sink.url() } else { "" };
    let mut settings = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("TRACE_SAMPLE_RATIO", sampled.unwrap_or("0"))];
    if variant == AS_SHIPPED {
        settings.extend([("SUITE_BIN_DIR", stage.shipped.as_str()), ("FAULTS_ENABLED", "true")]);
    }
    stage.service("restart", &traced(), &settings).await?;
    let before = sink.bytes();
    let load = stage.saturate(stage.time(4, 2), stage.time(12, 4), &[]).await?;
    let came = sink.bytes() > before;
    ensure!(came == sampled.is_some(), "with {sampled:?} of all traces, spans came: {came}");
    if let Some(scraper) = scraper {
        scraper.stop().await?;
    }
    Ok(load.ended_per_second)
}
