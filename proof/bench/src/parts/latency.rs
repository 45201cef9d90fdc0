//! Latency of requests and sagas below saturation. The load is open: a request is due at its time, and a delay counts as
//! latency.

use super::saturated::SAGAS;
use crate::{
    figure::{Figure, Results},
    load::Load,
    suite::MeasuredSuite,
};

pub(super) async fn measure(suite: &MeasuredSuite, earlier: &Results) -> anyhow::Result<Vec<Figure>> {
    let peak = match earlier.value("saturated", SAGAS) {
        Some(peak) => peak,
        None => suite.saturate(suite.time(5, 2), suite.time(20, 5), &[]).await?.ended_per_second,
    };
    let slow = at(suite, 10, "100").await?;
    let usual = at(suite, 100, "20").await?;
    let busy = at(suite, (peak * 0.7) as u32, "2").await?;
    let mut figures = Vec::new();
    for (name, load) in [("10/s", &slow), ("100/s", &usual), ("70 % of the peak", &busy)] {
        for (what, latency) in
            [("POST", load.answer), ("order to end", load.saga), ("seen by client", load.seen_by_client)]
        {
            let figure = |percentile: &str, ms| Figure::new(format!("{name}, {what}, {percentile}"), ms, "ms");
            figures.push(figure("p50", latency.p50_ms));
            figures.push(figure("p95", latency.p95_ms));
            figures.push(figure("p99", latency.p99_ms));
        }
    }
    for (name, most) in [
        ("10/s, order to end, p50", 12.0),
        ("10/s, order to end, p99", 30.0),
        ("100/s, POST, p99", 30.0),
        ("100/s, order to end, p50", 20.0),
        ("70 % of the peak, order to end, p99", 300.0),
    ] {
        for figure in figures.iter_mut().filter(|figure| figure.name == name) {
            *figure = figure.clone().at_most(most);
        }
    }
    Ok(figures)
}

/// `followed`: the percentage of orders that the client polls to their end.
async fn at(suite: &MeasuredSuite, rate: u32, followed: &str) -> anyhow::Result<Load> {
    let rate = rate.max(1).to_string();
    suite.load(suite.time(3, 1), suite.time(30, 4), &["--rate", &rate, "--follow", followed]).await
}
