//! What can be measured, one file each.

mod telemetry;

use clap::ValueEnum;

use crate::{
    figure::{Figure, Results},
    stage::Stage,
};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// What telemetry costs: throughput without it, with 1 % and with all traces
    Telemetry,
}

impl Part {
    /// In an order in which a part finds the figures that it is compared with.
    pub(crate) fn all() -> Vec<Part> {
        Part::value_variants().to_vec()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Telemetry => "telemetry",
        }
    }

    pub(crate) async fn measure(self, stage: &Stage, _earlier: &Results) -> anyhow::Result<Vec<Figure>> {
        match self {
            Part::Telemetry => telemetry::measure(stage).await,
        }
    }
}
