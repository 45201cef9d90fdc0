//! What can be measured, one file each.

mod consumer;
mod full_tables;
mod held_transaction;
mod hot_product;
mod idle;
mod latency;
mod relay;
mod replicas;
mod saturated;
mod telemetry;
mod yardstick;

use clap::ValueEnum;

use crate::{
    figure::{Figure, Results, median},
    stage::Stage,
};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// How many sagas a second the suite does for a minute, and what each costs in processor time
    Saturated,
    /// How that compares with what people would otherwise write: pgbench, one event at a time
    Yardstick,
    /// How long requests and sagas take at 10/s, at 100/s and at 70 % of the peak
    Latency,
    /// How fast the relay drains 200,000 events
    Relay,
    /// How fast a consumer brings 200,000 events through a step that does nothing
    Consumer,
    /// All orders want the same two products
    HotProduct,
    /// A million published events and a million ended sagas are in the tables
    FullTables,
    /// Somebody holds a transaction open for a minute
    HeldTransaction,
    /// What the services cost while nothing happens
    Idle,
    /// Two replicas of each service
    Replicas,
    /// What telemetry costs: throughput without it, with 1 % and with all traces
    Telemetry,
}

impl Part {
    /// In an order in which a part finds the figures that it is compared with.
    pub(crate) fn all() -> Vec<Part> {
        Part::value_variants().to_vec()
    }

    /// As it is named on the command line, in words.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().replace('-', " ")).unwrap_or_default()
    }

    pub(crate) async fn measure(self, stage: &Stage, earlier: &Results) -> anyhow::Result<Vec<Figure>> {
        match self {
            Part::Saturated => saturated::measure(stage).await,
            Part::Yardstick => yardstick::measure(stage).await,
            Part::Latency => latency::measure(stage, earlier).await,
            Part::Relay => relay::measure(stage).await,
            Part::Consumer => consumer::measure(stage).await,
            Part::HotProduct => hot_product::measure(stage).await,
            Part::FullTables => full_tables::measure(stage).await,
            Part::HeldTransaction => held_transaction::measure(stage).await,
            Part::Idle => idle::measure(stage).await,
            Part::Replicas => replicas::measure(stage).await,
            Part::Telemetry => telemetry::measure(stage).await,
        }
    }
}

/// Measures each of the variants once a round, by turns, and each of them first, second and so on by turns: what else
/// happens on the machine, and whatever grows with time, meets all of them.
async fn by_turns<const N: usize>(
    rounds: usize,
    names: [&str; N],
    mut measure: impl AsyncFnMut(usize) -> anyhow::Result<f64>,
) -> anyhow::Result<[Vec<f64>; N]> {
    let mut measured = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let variant = (turn + round) % N;
            let value = measure(variant).await?;
            eprintln!("round {}: {}: {value:.0}/s", round + 1, names[variant]);
            measured[variant].push(value);
        }
    }
    Ok(measured)
}

/// What the median of one is to the median of the other.
fn ratio(name: &str, of: &[f64], to: &[f64]) -> Figure {
    Figure::new(name, median(of) / median(to), "")
}
