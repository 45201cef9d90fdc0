//! Trips, each a room and a seat or neither, despite crashes. `trip_booking SERVICE [POINT]` runs one service, which crashes
//! at its first pass of the point; without arguments both run on their own servers, crash at every point, and are audited.

mod audit;
mod booking;
mod service;
mod steps;
mod sweep;

use std::env;

use anyhow::Context;

use crate::booking::{FLIGHT, HOTEL};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let Some(name) = arguments.next() else { return sweep::sweep().await };
    let service = [FLIGHT, HOTEL].into_iter().find(|service| service.0 == name).context("no such service")?;
    let faults = service::crash_at(arguments.next().map(|point| point.parse()).transpose()?)?;
    let (database, nats) = (env::var("DATABASE_URL")?.parse()?, env::var("NATS_URL")?);
    service::run(service::outbox(&database, &nats, service, faults).await?).await
}
