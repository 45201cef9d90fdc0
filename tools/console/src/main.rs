//! `console`: the operator's console. Exit code 0: no problem; 1: a problem was found; 2: the command failed.

use std::{io::Write as _, process::ExitCode};

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match console::run(console::Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Its reader may be gone.
            let _ = writeln!(std::io::stderr(), "console: {error:#}");
            ExitCode::from(2)
        }
    }
}
