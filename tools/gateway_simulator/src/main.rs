//! The card processor as a program.

use std::process::ExitCode;

use bootstrap::Service;
use clap::Parser;
use gateway_simulator::{Config, SERVICE, build};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    bootstrap::run(SERVICE, &config.base, async |startup| {
        let (api, journal) = build(&startup, &config).await?;
        Ok(Service::new(api).with_tasks([journal]))
    })
    .await
}
