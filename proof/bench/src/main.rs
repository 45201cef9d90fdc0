//! Measures a suite of its own, part by part. After each part the suite is audited, and figures whose audit is not clean
//! do not count. Exit code 1: an audit was not clean.

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
    /// Where results go, as one JSON document
    #[arg(long)]
    json: PathBuf,
    #[command(flatten)]
    stage: Stage,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Cli { parts, json, stage } = Cli::parse();
    let mut results = Results::default();
    let parts = if parts.is_empty() { Part::all() } else { parts };
    for part in parts {
        eprintln!("== {}", part.name());
        // What one part leaves behind is no burden for the next.
        stage.fresh_suite().await?;
        let measured = part.measure(&stage, &results).await;
        let figures = measured.with_context(|| format!("{} cannot be measured", part.name()))?;
        let audit = stage.audit().await?;
        results.add(part.name(), figures, audit);
        // What has been measured stays, whatever happens to the next part.
        results.write(&json)?;
    }
    print!("{results}");
    println!("\n{}", json.display());
    Ok(if results.clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
