//! The order service.

use std::process::ExitCode;

use clap::Parser;
use order::Config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    bootstrap::run(order::INFO, &config.base.clone(), |startup| order::build(startup, config)).await
}
