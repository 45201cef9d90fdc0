//! The parts of the benchmark, one file each.

mod cluster;
mod consumer;
mod full_tables;
mod held_transaction;
mod hot_product;
mod idle;
mod latency;
mod link;
mod orchestrated;
mod relay;
mod replicas;
mod saturated;
mod telemetry;
mod yardstick;

use anyhow::ensure;
use clap::ValueEnum;

use crate::{
    figure::{Figure, Results},
    suite::MeasuredSuite,
};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Sagas per second over a minute of saturation, and the processor time of each
    Saturated,
    /// The same compared with hand-written SQL: pgbench, one event at a time
    Yardstick,
    /// Latency of requests and sagas at 10/s, at 100/s and at 70 % of the peak
    Latency,
    /// Throughput of the relay with a backlog of 200,000 events
    Relay,
    /// Throughput of a consumer with 200,000 events and an empty step
    Consumer,
    /// Throughput while all orders are for the same few products
    HotProduct,
    /// Throughput with ten million published events and a million ended sagas in the tables
    FullTables,
    /// Throughput while an idle transaction blocks vacuum for more than a minute
    HeldTransaction,
    /// Processor time and memory of idle services
    Idle,
    /// Throughput and idle cost of two and three replicas of each service
    Replicas,
    /// Throughput and latency of a cluster on this machine, against single servers
    Cluster,
    /// Throughput of a relay and a consumer whose broker and database are 2 ms away
    Link,
    /// Choreographed and orchestrated sagas compared: throughput, processor, latency, messages, a participant that is away
    Orchestrated,
    /// The cost of telemetry: throughput without it, with 1 % of the traces, and as users get it
    Telemetry,
}

impl Part {
    /// In the order of their dependencies: a part may compare with the figures of an earlier one.
    pub(crate) fn all() -> Vec<Part> {
        Part::value_variants().to_vec()
    }

    /// The name on the command line, with spaces.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().replace('-', " ")).unwrap_or_default()
    }

    pub(crate) async fn measure(self, suite: &MeasuredSuite, earlier: &Results) -> anyhow::Result<Vec<Figure>> {
        match self {
            Part::Saturated => saturated::measure(suite).await,
            Part::Yardstick => yardstick::measure(suite).await,
            Part::Latency => latency::measure(suite, earlier).await,
            Part::Relay => relay::measure(suite).await,
            Part::Consumer => consumer::measure(suite).await,
            Part::HotProduct => hot_product::measure(suite).await,
            Part::FullTables => full_tables::measure(suite).await,
            Part::HeldTransaction => held_transaction::measure(suite).await,
            Part::Idle => idle::measure(suite).await,
            Part::Replicas => replicas::measure(suite).await,
            Part::Cluster => cluster::measure(suite).await,
            Part::Link => link::measure(suite).await,
            Part::Orchestrated => orchestrated::measure(suite).await,
            Part::Telemetry => telemetry::measure(suite).await,
        }
    }
}

/// Sagas per second of several variants. Each is measured once per round, and their order rotates: other work on the machine, and
/// growth over time, affect all variants alike. Returns also the medians as figures.
async fn by_turns<const N: usize>(
    rounds: usize,
    names: [&str; N],
    mut measure: impl AsyncFnMut(usize) -> anyhow::Result<f64>,
) -> anyhow::Result<([Vec<f64>; N], Vec<Figure>)> {
    let mut measured = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let variant = (turn + round) % N;
            let value = measure(variant).await?;
            eprintln!("round {}: {}: {value:.0}/s", round + 1, names[variant]);
            measured[variant].push(value);
        }
    }
    let medians = names.iter().zip(&measured);
    let figures =
        medians.map(|(name, measured)| Figure::median_of(format!("sagas, {name}"), measured, "1/s")).collect();
    Ok((measured, figures))
}

/// How two variants compare: the mean, without outliers, of the ratios of each round, in which the machine was as fast for both.
/// Its speed changes by a third from minute to minute, so the medians of two variants may be of different rounds.
fn ratio(name: &str, of: &[f64], to: &[f64]) -> Figure {
    let rounds: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    Figure::ratio_of(name, &rounds)
}

/// Audits a suite that was measured beside the first.
async fn ensure_clean(suite: &MeasuredSuite, name: &str) -> anyhow::Result<()> {
    ensure!(suite.audit().await?, "{name}: the audit is not clean");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_compared_within_a_round() {
        // The machine was half as fast in the second round, and the first variant was unlucky in the third.
        let (of, to) = ([40.0, 20.0, 10.0, 40.0, 44.0], [20.0, 10.0, 20.0, 20.0, 20.0]);
        assert!((ratio("", &of, &to).value - 2.0).abs() < 1e-9);
    }
}
