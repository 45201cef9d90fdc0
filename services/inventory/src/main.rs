//! The inventory service.

use std::process::ExitCode;

use clap::Parser;
use inventory::Config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    bootstrap::run(inventory::INFO, &config.base.clone(), |startup| inventory::build(startup, config)).await
}
