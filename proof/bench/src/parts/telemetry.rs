//! What telemetry costs: the same load in turn without it, and with a collector and a Prometheus. The turns alternate,
//! so what else happens on the machine, and whatever grows with time, meets all of them.

use anyhow::ensure;

use crate::{
    figure::{Figure, median},
    scraper::Scraper,
    sink::Sink,
    stage::{SERVICES, Stage},
};

/// How telemetry is set: the share of traces that is sampled, if spans are collected at all.
const SETTINGS: [(&str, Option<&str>); 3] = [("off", None), ("1 % of traces", Some("0.01")), ("all traces", Some("1"))];

pub(super) async fn measure(stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let rounds = if stage.quick { 2 } else { 7 };
    let sink = Sink::start().await?;
    let mut measured: [Vec<f64>; SETTINGS.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..SETTINGS.len() {
            // Each setting comes first, second and third in turn.
            let setting = (turn + round) % SETTINGS.len();
            let (name, sampled) = SETTINGS[setting];
            let rate = with(stage, &sink, sampled).await?;
            eprintln!("round {}: {name}: {rate:.0} sagas/s", round + 1);
            measured[setting].push(rate);
        }
    }
    stage.service("restart", &SERVICES, &[]).await?;
    Ok(figures(&measured))
}

async fn with(stage: &Stage, sink: &Sink, sampled: Option<&str>) -> anyhow::Result<f64> {
    let scraper = sampled.map(|_| Scraper::start(stage)).transpose()?;
    match sampled {
        Some(ratio) => {
            let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url()), ("TRACE_SAMPLE_RATIO", ratio)];
            stage.service("restart", &SERVICES, &settings).await?;
        }
        None => stage.service("restart", &SERVICES, &[]).await?,
    }
    let before = sink.bytes();
    let load = stage.saturate(stage.time(4, 2), stage.time(12, 4), &[]).await?;
    ensure!(
        (sink.bytes() > before) == sampled.is_some(),
        "spans came although telemetry is off, or none although it is on"
    );
    if let Some(scraper) = scraper {
        scraper.stop().await?;
    }
    Ok(load.ended_per_second)
}

fn figures(measured: &[Vec<f64>; SETTINGS.len()]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ((name, sampled), rates) in SETTINGS.iter().zip(measured) {
        figures.push(Figure::median_of(format!("sagas, telemetry {name}"), rates, "1/s"));
        if sampled.is_some() {
            let ratio = Figure::new(format!("{name} / off"), median(rates) / median(&measured[0]), "");
            // Only the usual setting has a target; all traces are for looking closely.
            figures.push(if *sampled == Some("1") { ratio } else { ratio.at_least(0.9) });
        }
    }
    figures
}
