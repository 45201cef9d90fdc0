//! Rolls a newer build of the suite out and back under load: see `upgrade --help`.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let clean = upgrade::run(upgrade::Cli::parse()).await?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
