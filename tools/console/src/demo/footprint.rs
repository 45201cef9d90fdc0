//! What the suite occupies: connections to the database and memory. After all scenarios both must be back where they
//! were. Most services have been started again in between, so what they are compared with is a fresh, warm process too:
//! services started anew, which have fulfilled as many orders as they do before the second look. The gateway is left
//! out: it is the outside world, and keeps its whole ledger in memory.
//!
//! A pool opens a connection whenever all it has are busy, up to its bound, so how many it has open says how busy one
//! moment was. What leaks is either in use for ever, or open at the server and no longer known to any pool.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use super::{
    DemoArgs, Means,
    run::{self, Ending},
    stage::Stage,
    surroundings,
};
use crate::{
    audit, interrupted,
    suite::{SERVICES, Suite},
};

/// How much more is still the same.
const TOLERANCE: f64 = 0.1;
/// How much more memory is: the allocator keeps what the busiest moment needed, and some scenarios are busier than others.
const MEMORY_TOLERANCE: f64 = 0.25;
/// Enough orders for every pool and every buffer to have grown as far as it does.
const WARM_UP: usize = 600;
/// How long memory and connections may take to be given back.
const SETTLE: Duration = Duration::from_secs(30);
/// Beside a load some connections are in use at any moment: what leaked is in use at each of so many.
const MOMENTS: usize = 20;
const MEMORY: &str = "process_resident_memory_bytes";
const POOLED: &str = "database_pool_connections";

/// What is occupied, by name: connections, or bytes of a process.
pub(super) struct Footprint(BTreeMap<String, f64>);

impl Footprint {
    /// Starts the services anew, warms them up, and looks.
    pub(super) async fn of_fresh_services(suite: &Suite, args: &DemoArgs, means: &Means) -> anyhow::Result<Self> {
        println!("=== Memory and connections of fresh and warm services, to be compared with in the end");
        let mut stage = run::stage(suite, args, &means.unhindered());
        for service in SERVICES {
            stage.processes.run("restart", service.0).await?;
        }
        warm_up(&mut stage).await?;
        let footprint = Footprint::least(&stage).await?;
        footprint.0.iter().for_each(|(what, value)| println!("     {}", told(what, *value)));
        println!();
        Ok(footprint)
    }

    /// Warms the services up and claims that they occupy what they did before.
    pub(super) async fn compare(&self, suite: &Suite, args: &DemoArgs, means: &Means) -> anyhow::Result<bool> {
        println!("\n=== Memory and connections, compared with fresh and warm services");
        let mut stage = run::stage(suite, args, &means.unhindered());
        let surroundings = run::begin(&stage, args, &[]).await?;
        let interrupted = tokio::select! {
            compared = self.claim_same(&mut stage) => compared.map(|()| false)?,
            () = interrupted() => true,
        };
        let about = "after all scenarios memory and connections are what they are in fresh and warm services";
        let ending = Ending { key: "all", name: "all scenarios", about, surroundings, report: None, interrupted };
        let verdict = run::conclude(ending, &mut stage, args).await;
        println!("{verdict}");
        Ok(verdict.passed)
    }

    async fn claim_same(&self, stage: &mut Stage) -> anyhow::Result<()> {
        warm_up(stage).await?;
        stage.step("What the services occupy now").await;
        let end = Instant::now() + SETTLE;
        let now = loop {
            let now = Footprint::least(stage).await?;
            if self.leaked(&now).next().is_none() || Instant::now() >= end {
                break now;
            }
            sleep(Duration::from_secs(1)).await;
        };
        for (what, after) in &now.0 {
            let before = self.before(what);
            stage.claim(&format!("{}, before {}", told(what, *after), amount(what, before)), self.fits(what, *after));
        }
        Ok(())
    }

    async fn least(stage: &Stage) -> anyhow::Result<Self> {
        let mut connection = audit::connect_database(&stage.stores.database_url).await?;
        let mut least = Footprint::look(stage, &mut connection).await?;
        for _ in 1..MOMENTS {
            sleep(Duration::from_millis(50)).await;
            let now = Footprint::look(stage, &mut connection).await?;
            least.0.retain(|what, value| {
                now.0.get(what).is_some_and(|now| {
                    *value = value.min(*now);
                    true
                })
            });
        }
        Ok(least)
    }

    async fn look(stage: &Stage, connection: &mut PgConnection) -> anyhow::Result<Self> {
        let mut occupied = BTreeMap::new();
        let mut open = surroundings::connections(connection).await?;
        for service in SERVICES {
            let name = service.0;
            let told = |what, value: Option<f64>| value.with_context(|| format!("{name} does not tell its {what}"));
            let bytes = told("memory", stage.suite.metric(service, MEMORY).await?)?;
            let pooled = told("connections", stage.suite.metric(service, POOLED).await?)?;
            let used = stage.suite.labelled_metric(service, POOLED, r#"state="used""#).await?;
            let opened = open.remove(&format!("{name}_service")).unwrap_or_default() as f64;
            occupied.insert(format!("memory of {name}"), bytes);
            occupied.insert(format!("connections of {name} in use"), told("connections in use", used)?);
            occupied.insert(format!("connections of {name} that no pool knows"), (opened - pooled).max(0.0));
        }
        for (role, count) in open {
            occupied.insert(format!("connections of {role}"), count as f64);
        }
        Ok(Footprint(occupied))
    }

    fn leaked<'a>(&'a self, now: &'a Footprint) -> impl Iterator<Item = &'a String> {
        now.0.iter().filter(|(what, after)| !self.fits(what, **after)).map(|(what, _)| what)
    }

    fn fits(&self, what: &str, after: f64) -> bool {
        self.0.get(what).is_some_and(|before| fits(what, *before, after))
    }

    fn before(&self, what: &str) -> f64 {
        self.0.get(what).copied().unwrap_or_default()
    }
}

async fn warm_up(stage: &mut Stage) -> anyhow::Result<()> {
    stage.step("Warming up").await;
    let sku = stage.product(WARM_UP as i64, 1_000).await?;
    let placed = stage.place_all(&sku, WARM_UP, "tok_visa").await?;
    stage.claim_tally(&placed, WARM_UP, SETTLE).await
}

/// What was given back is no leak, and neither is a single connection.
fn fits(what: &str, before: f64, after: f64) -> bool {
    let more = if what.starts_with("memory") { before * MEMORY_TOLERANCE } else { (before * TOLERANCE).max(1.0) };
    after <= before + more
}

fn told(what: &str, value: f64) -> String {
    format!("{what}: {}", amount(what, value))
}

fn amount(what: &str, value: f64) -> String {
    if what.starts_with("memory") { format!("{:.1} MiB", value / 1_048_576.0) } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_or_a_single_connection_is_no_leak() {
        let fits = |before, after| fits("connections of order in use", before, after);
        assert!(fits(100.0, 110.0) && fits(4.0, 5.0) && fits(4.0, 1.0));
        assert!(!fits(100.0, 112.0) && !fits(4.0, 6.0));
    }

    #[test]
    fn a_quarter_more_memory_is_what_the_allocator_keeps() {
        assert!(fits("memory of order", 100.0, 125.0) && fits("memory of order", 100.0, 10.0));
        assert!(!fits("memory of order", 100.0, 126.0));
    }

    #[test]
    fn what_nobody_had_before_is_a_leak() {
        let footprint = |of: &[(&str, f64)]| Footprint(of.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect());
        let before = footprint(&[("a", 10.0), ("b", 10.0)]);
        let leaked = |now: &Footprint| before.leaked(now).cloned().collect::<Vec<_>>();
        assert_eq!(leaked(&footprint(&[("a", 10.0), ("b", 10.5)])), Vec::<String>::new());
        assert_eq!(leaked(&footprint(&[("a", 20.0), ("b", 10.0)])), ["a"]);
        assert_eq!(leaked(&footprint(&[("a", 10.0), ("c", 10.0)])), ["c"]);
    }
}
