//! Two and three replicas of each service on the processors of one: what they cost, under load and idle. All orders are placed at
//! the first replica of order.

use tokio::time::sleep;

use super::{by_turns, ratio};
use crate::{
    figure::Figure,
    suite::{MeasuredSuite, services},
};

const NAMES: [&str; 3] = ["one replica each", "two replicas each", "three replicas each"];

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    // Only what was started once can be stopped.
    run(suite, NAMES.len()).await?;
    // Before the loads, whose tables are vacuumed for a minute afterwards.
    let mut idle = [Vec::new(), Vec::new()];
    for replicas in [1, 2, 2, 1] {
        run(suite, replicas).await?;
        idle[replicas - 1].push(idle_percent(suite).await?);
    }
    let by_turns = by_turns(suite.rounds(6), NAMES, async |variant| {
        run(suite, variant + 1).await?;
        suite.a_turn(&[]).await
    });
    let (measured, mut figures) = by_turns.await?;
    figures.push(ratio("two / one", &measured[1], &measured[0]).at_least(0.95));
    figures.push(ratio("three / two", &measured[2], &measured[1]).at_least(0.95));
    for (name, measured) in NAMES.iter().zip(&idle) {
        figures.push(Figure::median_of(format!("all processes idle, {name}, of one core"), measured, "%"));
    }
    figures.push(ratio("two / one, idle", &idle[1], &idle[0]).at_most(1.3));
    run(suite, 1).await?;
    Ok(figures)
}

/// Starts and stops replicas, so that this many of each service run.
async fn run(suite: &MeasuredSuite, replicas: usize) -> anyhow::Result<()> {
    for number in 2..=NAMES.len() {
        let all: Vec<String> = services().iter().map(|service| format!("{service}-{number}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        suite.service(if number <= replicas { "start" } else { "stop" }, &all, &[]).await?;
    }
    Ok(())
}

async fn idle_percent(suite: &MeasuredSuite) -> anyhow::Result<f64> {
    // What was going on has ended by then.
    sleep(suite.time(10, 2)).await;
    let processes = suite.processes()?;
    let (before, time) = (processes.cpu(), suite.time(30, 4));
    sleep(time).await;
    let spent: f64 = processes.cpu().since(&before).iter().map(|(_, ms)| ms).sum();
    Ok(spent / time.as_secs_f64() / 10.0)
}
