//! The same orders, choreographed and orchestrated, by turns on one suite.

use tokio::time::sleep;

use super::{by_turns, ratio};
use crate::{
    figure::{Figure, median},
    load::Load,
    suite::MeasuredSuite,
};

const NAMES: [&str; 2] = ["choreographed", "orchestrated"];
/// An orchestrated order keeps its connection until its end. Order accepts 512 requests at a time.
const CONNECTIONS: &str = "400";
/// Orders a second while inventory is away.
const RATE_AWAY: &str = "20";

/// What a saga of one kind costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    processor_ms: f64,
    transactions: f64,
    events: f64,
    commands: f64,
}

pub(super) async fn measure(suite: &MeasuredSuite) -> anyhow::Result<Vec<Figure>> {
    let mut costs = [Vec::new(), Vec::new()];
    let (measured, mut figures) = by_turns(suite.rounds(6), NAMES, async |variant| {
        let before = Counts::read(suite).await?;
        let load = suite.saturate(suite.time(3, 2), suite.time(8, 4), &options(variant)).await?;
        costs[variant].push(Counts::read(suite).await?.since(&before, load.orders as f64));
        Ok(load.ended_per_second)
    })
    .await?;
    figures.push(ratio("orchestrated / choreographed", &measured[1], &measured[0]));
    for (name, costs) in NAMES.iter().zip(&costs) {
        let figure = |what: &str, unit, of: fn(&Cost) -> f64| {
            Figure::median_of(format!("{name}, {what} a saga"), &costs.iter().map(of).collect::<Vec<_>>(), unit)
        };
        figures.push(figure("processor time", "ms", |cost| cost.processor_ms));
        figures.push(figure("transactions", "", |cost| cost.transactions));
        figures.push(figure("published events", "", |cost| cost.events));
        figures.push(figure("commands", "", |cost| cost.commands));
    }
    for variant in 0..NAMES.len() {
        let busy = (median(&measured[variant]) * 0.7) as u32;
        for (at, rate) in [("10/s", 10), ("70 % of its peak", busy)] {
            let load = at_rate(suite, variant, &rate.to_string()).await?;
            for (percentile, ms) in [("p50", load.saga.p50_ms), ("p99", load.saga.p99_ms)] {
                figures.push(Figure::new(format!("{}, {at}, order to end, {percentile}", NAMES[variant]), ms, "ms"));
            }
        }
    }
    for variant in 0..NAMES.len() {
        figures.extend(with_inventory_away(suite, variant).await?);
    }
    Ok(figures)
}

fn options(variant: usize) -> Vec<&'static str> {
    let mut options = vec!["--connections", CONNECTIONS];
    options.extend((variant == 1).then_some("--orchestrated"));
    options
}

async fn at_rate(suite: &MeasuredSuite, variant: usize, rate: &str) -> anyhow::Result<Load> {
    let mut options = options(variant);
    options.extend(["--rate", rate, "--follow", "0"]);
    suite.load(suite.time(3, 1), suite.time(20, 4), &options).await
}

/// Inventory is away for ten of twenty seconds, in which orders arrive.
async fn with_inventory_away(suite: &MeasuredSuite, variant: usize) -> anyhow::Result<Vec<Figure>> {
    let mut options = options(variant);
    options.extend(["--rate", RATE_AWAY, "--follow", "0"]);
    let away = async {
        sleep(suite.time(5, 2)).await;
        suite.service("stop", &["inventory"], &[]).await?;
        sleep(suite.time(10, 3)).await;
        suite.service("start", &["inventory"], &[]).await
    };
    let before = confirmed(suite).await?;
    let placing = suite.load_whatever_ends(suite.time(0, 0), suite.time(20, 6), &options);
    let (load, ()) = tokio::try_join!(placing, away)?;
    let share = (confirmed(suite).await? - before) / load.orders as f64 * 100.0;
    let name = NAMES[variant];
    Ok(vec![
        Figure::new(format!("{name}, inventory away for 10 s, confirmed"), share, "%"),
        Figure::new(format!("{name}, inventory away for 10 s, order to end, p50"), load.saga.p50_ms, "ms"),
        Figure::new(format!("{name}, inventory away for 10 s, order to end, p99"), load.saga.p99_ms, "ms"),
    ])
}

async fn confirmed(suite: &MeasuredSuite) -> anyhow::Result<f64> {
    let count = "select count(*)::float8 from orders.customer_order where status = 'CONFIRMED'";
    Ok(sqlx::query_scalar(count).fetch_one(&mut suite.superuser().await?).await?)
}

/// What the suite has done so far.
struct Counts {
    processor_ms: f64,
    transactions: f64,
    events: f64,
    commands: f64,
}

impl Counts {
    async fn read(suite: &MeasuredSuite) -> anyhow::Result<Counts> {
        let spent = suite.processes()?.cpu().since(&Default::default());
        let mut database = suite.superuser().await?;
        let (transactions, events, commands) = sqlx::query_as(
            "select (select xact_commit::float8 from pg_stat_database where datname = current_database()),
                (select count(event_id)::float8 from saga.saga_step),
                (select count(*)::float8 from saga.saga_step
                    where event_type = 'command' and step in ('reserve_stock', 'process_payment'))",
        )
        .fetch_one(&mut database)
        .await?;
        Ok(Counts { processor_ms: spent.iter().map(|(_, ms)| ms).sum(), transactions, events, commands })
    }

    fn since(&self, before: &Counts, sagas: f64) -> Cost {
        Cost {
            processor_ms: (self.processor_ms - before.processor_ms) / sagas,
            transactions: (self.transactions - before.transactions) / sagas,
            events: (self.events - before.events) / sagas,
            commands: (self.commands - before.commands) / sagas,
        }
    }
}
