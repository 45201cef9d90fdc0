//! Measures a private suite, part by part. After each part the suite is audited; figures without a clean audit are void.
//! Exit code 1: an audit was not clean, or a part could not be measured.

mod figure;
mod load;
mod parts;
mod processes;
mod sink;
mod suite;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{
    figure::{Figure, Results},
    parts::Part,
    sink::Sink,
    suite::MeasuredSuite,
};

/// Measures the suite, part by part.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Cli {
    /// What to measure; everything when nothing is named
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// The file for the results, one JSON document
    #[arg(long)]
    json: PathBuf,
    #[command(flatten)]
    suite: MeasuredSuite,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Cli { parts, json, suite } = Cli::parse();
    let suite = suite.with_collector(Some(Sink::start().await?));
    let mut results = Results::default();
    let parts = if parts.is_empty() { Part::all() } else { parts };
    for part in parts {
        eprintln!("== {}", part.name());
        match measure(part, &suite, &results).await {
            Ok((figures, audit_clean)) => results.add(part.name(), figures, audit_clean),
            Err(error) => results.add_failed(part.name(), &error),
        }
        // Written after each part, so that a later failure loses no result.
        reports::write_json(&results, &json)?;
    }
    print!("{results}");
    println!("\n{}", json.display());
    Ok(if results.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The figures of a part, and whether the audit behind it is clean.
async fn measure(part: Part, suite: &MeasuredSuite, earlier: &Results) -> anyhow::Result<(Vec<Figure>, bool)> {
    // No part runs on the data of another.
    suite.fresh_suite().await?;
    // Everything is measured with telemetry on, as in production.
    let scraper = if part == Part::Telemetry { None } else { Some(suite.scraper().await?) };
    let figures = part.measure(suite, earlier).await?;
    drop(scraper);
    Ok((figures, suite.audit().await?))
}
