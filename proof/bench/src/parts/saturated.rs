//! Sagas per second under saturation, and the processor time of each.

use crate::{
    figure::Figure,
    suite::{MeasuredSuite, services},
};

pub(super) const SAGAS: &str = "sagas";

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let processes = suite.processes()?;
    let before = processes.cpu();
    let load = suite.saturate(suite.time(5, 2), suite.time(60, 5), &[]).await?;
    let spent = processes.cpu().since(&before);
    let orders = load.orders as f64;
    let all: f64 = spent.iter().map(|(_, ms)| ms).sum();
    let mut figures = vec![
        Figure::new(SAGAS, load.ended_per_second, "1/s").at_least(2_000.0),
        Figure::new("order to end, p99", load.saga.p99_ms, "ms"),
        Figure::new("processor time a saga, all processes", all / orders, "ms").at_most(1.0),
    ];
    figures.extend(spent.iter().map(|(name, ms)| Figure::new(format!("  of which {name}"), ms / orders, "ms")));
    figures.push(
        Figure::new("memory of the services, peak", processes.peak_memory_mib(&services()), "MiB").at_most(400.0),
    );
    Ok(figures)
}
