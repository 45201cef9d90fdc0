//! Load: orders are placed at a rate, whether or not the ones before have been answered, or as fast as orders end.
//! Whatever is acknowledged is looked for afterwards, and has to have ended.

mod args;
mod books;
mod latency;
mod life;
mod pace;
mod plan;
mod progress;
mod report;
mod stock;
mod window;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
pub use args::LoadArgs;
use futures_util::future::{self, Either};
use life::{Course, Life};
use pace::{Pace, Turns};
use plan::Orders;
use progress::Progress;
use report::Report;
use sqlx::Connection;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};
use uuid::Uuid;
use window::Window;

use crate::{audit, suite::Suite};

/// Loads the suite and prints what came of it; `Ok(false)` when an order was refused without cause,
/// got lost or did not end.
pub async fn command(args: &LoadArgs) -> anyhow::Result<bool> {
    if args.followed() < 1.0 && args.database_url.is_none() {
        bail!("orders that the client does not follow are looked up in the database: DATABASE_URL says where it is");
    }
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let suite = if args.no_keep_alive { suite.without_keep_alive().context("no HTTP client")? } else { suite };
    let not_ready = suite.still_not_ready().await;
    if !not_ready.is_empty() {
        bail!("the suite is not ready:\n  {}", not_ready.join("\n  "));
    }
    // The last bits of a UUIDv7 are random.
    let seed = args.seed.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1 >> 32);
    stock::prepare(&suite, args).await.context("the products for the load cannot be prepared")?;
    match args.pace() {
        Pace::Open { rate, .. } => eprintln!("placing orders at {rate}/s, seed {seed}"),
        Pace::Closed { in_flight } => eprintln!("placing orders, {in_flight} open at a time, seed {seed}"),
    }
    let began = Instant::now();
    let mut lives = run(&suite, seed, args).await?;
    let took = began.elapsed();
    look_again(&suite, &mut lives, args).await?;
    let report = Report::new(seed, took, args.warm_up, &lives);
    publish(&report, args.json.as_deref())?;
    Ok(report.passed)
}

/// Places each order when its turn has come, and waits until all have been followed as far as they are.
async fn run(suite: &Suite, seed: u64, args: &LoadArgs) -> anyhow::Result<Vec<Life>> {
    let mut course = Course {
        suite: suite.clone(),
        settle: args.settle,
        connections: Semaphore::new(usize::from(args.connections)),
        window: None,
        measured_from: Instant::now() + args.warm_up,
    };
    let (Pace::Closed { in_flight }, Some(url)) = (args.pace(), &args.database_url) else {
        return place(course, Arc::new(Semaphore::new(0)), seed, args).await;
    };
    let (window, giving_back) = Window::of(in_flight, audit::connect_database(url).await?);
    let free = window.free();
    course.window = Some(window);
    let placing = place(course, free, seed, args);
    match future::select(Box::pin(placing), Box::pin(giving_back)).await {
        Either::Left((lives, _)) => lives,
        Either::Right((result, _)) => {
            result.context("the database cannot be asked which orders have ended")?;
            bail!("nobody watches which orders have ended")
        }
    }
}

async fn place(course: Course, free: Arc<Semaphore>, seed: u64, args: &LoadArgs) -> anyhow::Result<Vec<Life>> {
    let course = Arc::new(course);
    let mut orders = Orders::new(args, seed);
    let mut turns = Turns::begin(args.pace(), free);
    let mut progress = Progress::begin(args.expected(), args.time);
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let until = turns.began() + args.time.unwrap_or(Duration::from_secs(365 * 24 * 3600));
    let (mut running, mut lives, mut placed) = (JoinSet::new(), Vec::new(), 0);
    while placed < args.limit() {
        let due = tokio::select! {
            due = turns.next() => due,
            () = tokio::time::sleep_until(until) => break,
            _ = &mut interrupted => break,
        };
        let Some(planned) = orders.next().filter(|_| due < until) else { break };
        let course = Arc::clone(&course);
        running.spawn(async move { course.follow(planned, due).await });
        placed += 1;
        while let Some(life) = running.try_join_next() {
            lives.push(life.context("an order could not be followed")?);
        }
        progress.show(placed, running.len());
    }
    progress.end();
    eprintln!("{placed} orders placed or being placed, waiting for {} of them", running.len());
    while let Some(life) = running.join_next().await {
        lives.push(life.context("an order could not be followed")?);
    }
    Ok(lives)
}

/// Looks for all acknowledged orders once more, in the database if it is known.
async fn look_again(suite: &Suite, lives: &mut [Life], args: &LoadArgs) -> anyhow::Result<()> {
    let Some(url) = &args.database_url else {
        life::look_again(suite, lives).await;
        return Ok(());
    };
    let mut connection = audit::connect_database(url).await?;
    let looked_up = timeout(args.settle * 2, books::look_up(&mut connection, lives, args.settle)).await;
    looked_up.context("the database takes too long")?.context("the orders cannot be looked up in the database")?;
    connection.close().await?;
    Ok(())
}

fn publish(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    match json {
        Some(file) if file == Path::new("-") => println!("{}", serde_json::to_string_pretty(report)?),
        Some(file) => {
            std::fs::write(file, serde_json::to_string_pretty(report)?)
                .with_context(|| format!("{} cannot be written", file.display()))?;
            print!("{report}");
        }
        None => print!("{report}"),
    }
    Ok(())
}
