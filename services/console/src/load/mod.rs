//! Open-loop load: orders are placed at a rate, whether or not the ones before have been answered,
//! and every single one is followed to its end.

mod latency;
mod life;
mod plan;
mod report;
mod stock;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use life::{Course, Life};
use report::Report;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use uuid::Uuid;

use crate::suite::{Addresses, Suite};

/// `console load`.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    /// How many orders to place
    #[arg(long, default_value_t = 500)]
    orders: u32,
    /// Orders a second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Lines of an order: a number, or the least and the most
    #[arg(long, default_value = "1-5", value_parser = plan::parse_lines)]
    lines: RangeInclusive<usize>,
    /// Percent of orders whose card is declined
    #[arg(long, default_value_t = 5.0, value_parser = plan::parse_percent)]
    declines: f64,
    /// Percent of orders that their customer cancels while they are being fulfilled
    #[arg(long, default_value_t = 3.0, value_parser = plan::parse_percent)]
    cancels: f64,
    /// Percent of orders that want a product of which there is too little
    #[arg(long, default_value_t = 10.0, value_parser = plan::parse_percent)]
    scarce: f64,
    /// How long each order may take from its placement to the end of its saga
    #[arg(long, default_value = "90s", value_parser = humantime::parse_duration)]
    settle: Duration,
    /// Repeats a run: the same orders in the same order
    #[arg(long)]
    seed: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    addresses: Addresses,
}

/// Loads the suite and prints what came of it; `Ok(false)` when an order was refused without cause,
/// got lost or did not end.
pub async fn command(args: &LoadArgs) -> anyhow::Result<bool> {
    let suite = Arc::new(Suite::new(args.addresses.clone()).context("no HTTP client")?);
    let not_ready = suite.still_not_ready().await;
    if !not_ready.is_empty() {
        bail!("the suite is not ready (./scripts/up starts it):\n  {}", not_ready.join("\n  "));
    }
    // The last bits of a UUIDv7 are random.
    let seed = args.seed.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1 >> 32);
    let orders = plan::plan(args, seed);
    stock::prepare(&suite, &orders).await.context("the products for the load cannot be prepared")?;
    eprintln!("placing {} orders at {}/s, seed {seed}", args.orders, args.rate);
    let began = Instant::now();
    let mut lives = run(&suite, orders, args).await?;
    let took = began.elapsed();
    life::look_again(&suite, &mut lives).await;
    let report = Report::new(seed, took, &lives);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report.passed)
}

/// Places each order when its time has come, and waits until all have ended.
async fn run(suite: &Arc<Suite>, orders: Vec<plan::Planned>, args: &LoadArgs) -> anyhow::Result<Vec<Life>> {
    let course = Course { settle: args.settle };
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
    // A late tick is made up for: the rate is kept, and lateness counts as latency.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    for planned in orders {
        let due = ticks.tick().await;
        let suite = Arc::clone(suite);
        running.spawn(async move { course.follow(&suite, planned, due).await });
    }
    eprintln!("all placed or being placed, waiting for {} orders to end", running.len());
    let mut lives = Vec::new();
    while let Some(life) = running.join_next().await {
        lives.push(life.context("an order could not be followed")?);
    }
    Ok(lives)
}
