//! The cost of telemetry: the same load by turns without it, and with a collector and a Prometheus. Also the cost of the shipped
//! configuration: all traces, and armable faults.

use anyhow::{Context, ensure};

use super::{by_turns, ratio};
use crate::{
    figure::Figure,
    sink::Sink,
    suite::{MeasuredSuite, services},
};

/// The variants of telemetry: the sampled share of traces, or none without a collector.
const NAMES: [&str; 4] = ["telemetry off", "1 % of traces", "all traces", "as users get it"];
const SAMPLED: [Option<&str>; 4] = [None, Some("0.01"), Some("1"), Some("1")];
/// The variant whose programs are built with faults.
const AS_SHIPPED: usize = 3;

/// The processes that send spans.
fn traced() -> Vec<&'static str> {
    [&["gateway_simulator"][..], &services()].concat()
}

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let sink = suite.collector.as_ref().context("there is no collector")?;
    let by_turns = by_turns(suite.rounds(7), NAMES, async |variant| with(suite, sink, variant).await);
    let (measured, mut figures) = by_turns.await?;
    suite.service("restart", &traced(), &[]).await?;
    figures.extend([
        ratio("1 % of traces / off", &measured[1], &measured[0]).at_least(0.9),
        // Without a target: all traces are for debugging.
        ratio("all traces / off", &measured[2], &measured[0]),
        // The programs of all other figures have 1 % of traces.
        ratio("as users get it / 1 % of traces", &measured[AS_SHIPPED], &measured[1]).at_least(0.9),
    ]);
    Ok(figures)
}

async fn with(suite: &MeasuredSuite, sink: &Sink, variant: usize) -> anyhow::Result<f64> {
    let sampled = SAMPLED[variant];
    let _scraper = if sampled.is_some() { Some(suite.scraper().await?) } else { None };
    let url = if sampled.is_some() { sink.url() } else { "" };
    let mut settings = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("TRACE_SAMPLE_RATIO", sampled.unwrap_or("0"))];
    if variant == AS_SHIPPED {
        settings.extend([("SUITE_BIN_DIR", suite.shipped.as_str()), ("FAULTS_ENABLED", "true")]);
    }
    suite.service("restart", &traced(), &settings).await?;
    let before = sink.bytes();
    let load = suite.saturate(suite.time(4, 2), suite.time(12, 4), &[]).await?;
    let came = sink.bytes() > before;
    ensure!(came == sampled.is_some(), "with {sampled:?} of all traces, spans came: {came}");
    Ok(load.ended_per_second)
}
