//! The command line.

use std::{path::PathBuf, time::Duration};

use chaos::{cli::Place, report::publish};
use clap::Parser;

use crate::rolling::{self, Plan};

/// Rolls a newer build of the suite out and back under load, and checks that no order is affected.
#[derive(Debug, Parser)]
#[command(name = "upgrade", version)]
pub struct Cli {
    #[command(flatten)]
    place: Place,
    /// The folder of the newer build's programs
    #[arg(long, env = "NEWER_PROGRAMS_DIR")]
    newer: PathBuf,
    /// Orders a second
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// The duration of each mixture of the builds
    #[arg(long, default_value = "8s", value_parser = humantime::parse_duration)]
    hold: Duration,
    /// The seed of the orders; random, and printed, by default
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the upgrade. `Ok(false)`: it found a violation.
pub async fn run(cli: Cli) -> anyhow::Result<bool> {
    let older = cli.place.settings(rolling::REPLICAS)?;
    let seed = cli.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("seed {seed}");
    let plan = Plan { newer: cli.newer, rate: cli.rate, hold: cli.hold, seed };
    let report = rolling::roll_out_and_back(&older, &plan).await?;
    publish(&report, &cli.place.reports, "upgrade.json")?;
    Ok(report.failures().is_empty())
}
