//! Makes one classic mistake after the other, and checks that each is detected: see `planted --help`.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match planted::run(planted::Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("planted: {error:#}");
            ExitCode::from(2)
        }
    }
}
