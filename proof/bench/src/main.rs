//! Measures a suite of its own, part by part. After each part the suite is audited, and figures whose audit is not clean
//! do not count. Exit code 1: an audit was not clean, or a part could not be measured.

mod figure;
mod load;
mod parts;
mod processes;
mod scraper;
mod sink;
mod stage;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{
    figure::{Figure, Results},
    parts::Part,
    scraper::Scraper,
    sink::Sink,
    stage::Stage,
};

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
    let Cli { parts, json, mut stage } = Cli::parse();
    stage.collector = Some(Sink::start().await?);
    let mut results = Results::default();
    let parts = if parts.is_empty() { Part::all() } else { parts };
    for part in parts {
        eprintln!("== {}", part.name());
        match measure(part, &stage, &results).await {
            Ok((figures, audit_clean)) => results.add(part.name(), figures, audit_clean),
            Err(error) => results.add_failed(part.name(), &error),
        }
        // What has been measured stays, whatever happens to the next part.
        results.write(&json)?;
    }
    print!("{results}");
    println!("\n{}", json.display());
    Ok(if results.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The figures of a part, and whether the audit behind it is clean.
async fn measure(part: Part, stage: &Stage, earlier: &Results) -> anyhow::Result<(Vec<Figure>, bool)> {
    // What one part leaves behind is no burden for the next.
    stage.fresh_suite().await?;
    // Everything is measured with telemetry on, as the suite is meant to run.
    let scraper = (part != Part::Telemetry).then(|| Scraper::start(stage)).transpose()?;
    let figures = part.measure(stage, earlier).await?;
    if let Some(scraper) = scraper {
        scraper.stop().await?;
    }
    Ok((figures, stage.audit().await?))
}
