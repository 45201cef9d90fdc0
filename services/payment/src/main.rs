//! The payment service.

use std::process::ExitCode;

use clap::Parser;
use payment::Config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    bootstrap::run(payment::INFO, &config.base.clone(), |startup| payment::build(startup, config)).await
}
