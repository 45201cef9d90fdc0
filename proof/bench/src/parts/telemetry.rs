//! What telemetry costs: the same load by turns without it, and with a collector and a Prometheus.

use anyhow::{Context, ensure};

use super::{by_turns, ratio};
use crate::{figure::Figure, scraper::Scraper, sink::Sink, stage::Stage};

/// How telemetry is set: the share of traces that is sampled, if spans are collected at all.
const NAMES: [&str; 3] = ["telemetry off", "1 % of traces", "all traces"];
const SAMPLED: [Option<&str>; 3] = [None, Some("0.01"), Some("1")];

/// What sends spans.
const TRACED: [&str; 4] = ["gateway_simulator", "inventory", "payment", "order"];

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let sink = stage.collector.as_ref().context("there is no collector")?;
    let measured = by_turns(stage.rounds(7), NAMES, async |variant| with(stage, sink, SAMPLED[variant]).await).await?;
    stage.service("restart", &TRACED, &[]).await?;
    let [off, few, all] = &measured;
    Ok(vec![
        Figure::median_of("sagas, telemetry off", off, "1/s"),
        Figure::median_of("sagas, 1 % of traces", few, "1/s"),
        Figure::median_of("sagas, all traces", all, "1/s"),
        ratio("1 % of traces / off", few, off).at_least(0.9),
        // Without a target: it is for looking closely.
        ratio("all traces / off", all, off),
    ])
}

async fn with(stage: &Stage, sink: &Sink, sampled: Option<&str>) -> anyhow::Result<f64> {
    let scraper = sampled.map(|_| Scraper::start(stage)).transpose()?;
    let url = if sampled.is_some() { sink.url() } else { "" };
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("TRACE_SAMPLE_RATIO", sampled.unwrap_or("0"))];
    stage.service("restart", &TRACED, &settings).await?;
    let before = sink.bytes();
    let load = stage.saturate(stage.time(4, 2), stage.time(12, 4), &[]).await?;
    let came = sink.bytes() > before;
    ensure!(came == sampled.is_some(), "with {sampled:?} of all traces, spans came: {came}");
    if let Some(scraper) = scraper {
        scraper.stop().await?;
    }
    Ok(load.ended_per_second)
}
