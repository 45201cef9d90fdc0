//! Breaks a suite of its own on purpose. Exit code 1: something was lost, doubled, stuck or never hit.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let clean = chaos::run(chaos::Cli::parse()).await?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
