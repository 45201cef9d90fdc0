//! Measures a suite that `./scripts/bench` has started for nothing else. After each part the suite is audited, and a
//! figure whose audit is not clean does not count. Exit code 1: an audit was not clean.

mod figure;
mod load;
mod parts;
mod processes;
mod scraper;
mod sink;
mod stage;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Parser;

use crate::{figure::Results, parts::Part, stage::Stage};

/// Measures the suite, part by part.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Cli {
    /// What to measure; everything when nothing is named
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Short and few measurements: to see that it works, not for figures
    #[arg(long)]
    quick: bool,
    /// How many orders are open at a time when the suite is saturated
    #[arg(long, default_value_t = 400)]
    in_flight: u32,
    /// Where the scripts are that start and stop the suite
    #[arg(long, env = "BENCH_SCRIPTS", default_value = "scripts")]
    scripts: PathBuf,
    /// The state of the suite to be measured
    #[arg(long, env = "SUITE_RUN_DIR")]
    run_dir: PathBuf,
    /// Where results go, as one JSON document
    #[arg(long)]
    json: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let stage = Stage::new(cli.scripts, cli.run_dir, cli.quick, cli.in_flight)?;
    let mut results = Results::default();
    let parts = if cli.parts.is_empty() { Part::all() } else { cli.parts };
    for part in parts {
        eprintln!("== {}", part.name());
        let figures =
            part.measure(&stage, &results).await.with_context(|| format!("{} cannot be measured", part.name()))?;
        let audit = stage.audit().await?;
        results.add(part.name(), figures, audit);
        // What has been measured stays, whatever happens to the next part.
        results.write(&cli.json)?;
    }
    print!("{results}");
    println!("\n{}", cli.json.display());
    Ok(if results.clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
