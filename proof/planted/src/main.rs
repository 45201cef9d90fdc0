//! Planted bugs: the suite is built once with all classic mistakes, each of which a process makes only when its environment
//! says so. Every mistake is provoked in a suite of its own and has to be noticed; the same provocation of the same
//! programs without the mistake has to find nothing.

#![allow(clippy::disallowed_methods, reason = "an experiment owns its tasks")]

mod bug;
mod cli;
mod oracle;
mod provoke;
mod report;
mod scene;
mod trial;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("planted: {error:#}");
            ExitCode::from(2)
        }
    }
}
