//! Load: places orders at a rate (open loop) or as fast as orders end (closed loop). Every acknowledged order is looked up
//! afterwards and must have ended.

mod args;
mod arrivals;
mod client;
mod ended_orders;
mod latency;
mod plan;
mod progress;
mod read;
mod report;
mod window;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
pub use args::LoadArgs;
use arrivals::{ArrivalMode, Arrivals};
use client::{Client, OrderResult};
use futures_util::future::{self, Either};
use plan::Orders;
use progress::Progress;
use report::Report;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};
use uuid::Uuid;
use window::Window;

use crate::{audit, suite::Suite};

/// Loads the suite and prints the report; `Ok(false)` when an order was refused without cause, was lost or did not end.
pub async fn command(args: &LoadArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let suite = if args.no_keep_alive { suite.without_keep_alive().context("no HTTP client")? } else { suite };
    suite.become_ready().await.context("the suite is not ready")?;
    // The last bits of a UUIDv7 are random.
    let seed = args.seed.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1 >> 32);
    plan::stock(&suite, args).await.context("the products for the load cannot be prepared")?;
    match args.arrivals() {
        ArrivalMode::Open { rate, .. } => eprintln!("placing orders at {rate}/s, seed {seed}"),
        ArrivalMode::Closed { in_flight } => eprintln!("placing orders, {in_flight} open at a time, seed {seed}"),
    }
    let began = Instant::now();
    let mut results = run(&suite, seed, args).await?;
    let took = began.elapsed();
    look_up(&mut results, args).await?;
    let report = Report::new(seed, took, args.warm_up, &results);
    publish(&report, args.json.as_deref())?;
    Ok(report.passed)
}

/// Places each order when it is due, and waits for all clients.
async fn run(suite: &Suite, seed: u64, args: &LoadArgs) -> anyhow::Result<Vec<OrderResult>> {
    let mut client = Client {
        suite: suite.clone(),
        settle: args.settle,
        orchestrated: args.orchestrated,
        connections: Semaphore::new(usize::from(args.connections)),
        window: None,
        measured_from: Instant::now() + args.warm_up,
    };
    let ArrivalMode::Closed { in_flight } = args.arrivals() else {
        return place(client, Arc::new(Semaphore::new(0)), seed, args).await;
    };
    let (window, releasing) = Window::of(in_flight, audit::connect_database(&args.database_url).await?);
    let free = Arc::clone(&window.free);
    client.window = Some(window);
    let placing = place(client, free, seed, args);
    match future::select(Box::pin(placing), Box::pin(releasing)).await {
        Either::Left((results, _)) => results,
        Either::Right((result, _)) => {
            result.context("the ended orders cannot be queried")?;
            bail!("the query for ended orders has stopped")
        }
    }
}

async fn place(client: Client, free: Arc<Semaphore>, seed: u64, args: &LoadArgs) -> anyhow::Result<Vec<OrderResult>> {
    let client = Arc::new(client);
    let mut orders = Orders::new(args, seed);
    let mut arrivals = Arrivals::begin(args.arrivals(), free);
    let mut progress = Progress::begin(args.expected(), args.time);
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let until = arrivals.began + args.time.unwrap_or(Duration::from_secs(365 * 24 * 3600));
    let (mut running, mut results, mut placed) = (JoinSet::new(), Vec::new(), 0);
    while placed < args.limit() {
        let due = tokio::select! {
            due = arrivals.next() => due,
            () = tokio::time::sleep_until(until) => break,
            _ = &mut interrupted => break,
        };
        let Some(planned) = orders.next().filter(|_| due < until) else { break };
        let client = Arc::clone(&client);
        running.spawn(async move { client.follow(planned, due).await });
        placed += 1;
        while let Some(result) = running.try_join_next() {
            results.push(result.context("an order could not be followed")?);
        }
        progress.show(placed, running.len());
    }
    progress.end();
    eprintln!("{placed} orders placed or being placed, {} of them in progress", running.len());
    while let Some(result) = running.join_next().await {
        results.push(result.context("an order could not be followed")?);
    }
    Ok(results)
}

async fn look_up(results: &mut [OrderResult], args: &LoadArgs) -> anyhow::Result<()> {
    let looked_up = timeout(args.settle * 2, ended_orders::look_up(&args.database_url, results, args.settle)).await;
    looked_up.context("the database takes too long")?.context("the orders cannot be looked up in the database")
}

fn publish(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    match json {
        Some(file) if file == Path::new("-") => println!("{}", serde_json::to_string_pretty(report)?),
        Some(file) => {
            reports::write_json(report, file)?;
            print!("{report}");
        }
        None => print!("{report}"),
    }
    Ok(())
}
