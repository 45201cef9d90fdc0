//! Processor time and memory of idle services.

use tokio::time::sleep;

use crate::{
    figure::Figure,
    suite::{MeasuredSuite, services},
};

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    // Work at startup has ended by then.
    sleep(suite.time(15, 2)).await;
    let processes = suite.processes()?;
    let (before, time) = (processes.cpu(), suite.time(60, 5));
    sleep(time).await;
    let percent = |ms: f64| ms / time.as_secs_f64() / 10.0;
    let spent = processes.cpu().since(&before);
    let ours = |name: &str| !["postgres", "nats", "load"].contains(&name);
    let together: f64 = spent.iter().filter(|(name, _)| ours(name)).map(|(_, ms)| percent(*ms)).sum();
    let mut figures = vec![Figure::new("all services together, of one core", together, "%").at_most(2.0)];
    let others = spent.iter().filter(|(name, _)| name != "load");
    figures.extend(others.map(|(name, ms)| Figure::new(format!("  {name}"), percent(*ms), "%")));
    figures.push(Figure::new("memory of the services", processes.memory_mib(&services()), "MiB").at_most(150.0));
    Ok(figures)
}
