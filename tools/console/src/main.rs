//! `console`: the operator's console. Exit code 0: no problem; 1: a problem was found; 2: the command failed.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match console::run(console::Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("console: {error:#}");
            ExitCode::from(2)
        }
    }
}
