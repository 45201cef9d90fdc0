//! `console`: the operator's desk. Exit code 0: all is well; 1: it is not; 2: it could not be told.

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
