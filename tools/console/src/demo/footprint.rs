//! The suite's database connections and memory. After all scenarios both must be what they were before. The scenarios restart
//! most services, so the baseline is a fresh, warm process too: restarted services that have fulfilled as many orders as before
//! the second measurement. The gateway is left out: it keeps its whole ledger in memory.
//!
//! A pool opens a connection whenever all of its connections are busy, up to its limit, so the number of open ones only shows the
//! busiest moment. A leaked connection is either in use for ever, or open at the server and unknown to every pool.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use super::{
    Demo,
    host_script::StepPause,
    report::Ending,
    run::{self, begin, conclude},
    scenario_run::ScenarioRun,
};
use crate::{audit, interrupted, say, suite::SERVICES};

/// The share of additional connections that is no leak.
const TOLERANCE: f64 = 0.1;
/// The share of additional memory that is no leak: the allocator keeps what the busiest moment needed.
const MEMORY_TOLERANCE: f64 = 0.25;
/// Enough orders for every pool and buffer to reach its full size.
const WARM_UP: usize = 600;
/// How long the release of memory and connections may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Some connections are in use at any moment; a leaked one is in use in each of so many samples.
const SAMPLES: usize = 20;
const MEMORY: &str = "process_resident_memory_bytes";
const POOLED: &str = "database_pool_connections";

/// Connections and bytes of memory, by name.
pub(super) struct Footprint(BTreeMap<String, f64>);

impl Footprint {
    /// Restarts the services, warms them up, and measures.
    pub(super) async fn of_fresh_services(demo: &Demo<'_>) -> anyhow::Result<Self> {
        say("=== Memory and connections of fresh and warm services, for the comparison at the end");
        let mut run = unpaused_run(demo);
        for service in SERVICES {
            run.processes.run("restart", service.0).await?;
        }
        warm_up(&mut run).await?;
        let footprint = Footprint::minimum(&run).await?;
        footprint.0.iter().for_each(|(what, value)| say(format_args!("     {}", describe(what, *value))));
        say("");
        Ok(footprint)
    }

    /// Warms the services up and claims that they use no more than before.
    pub(super) async fn compare(&self, demo: &Demo<'_>) -> anyhow::Result<bool> {
        say("\n=== Memory and connections, compared with fresh and warm services");
        let mut run = unpaused_run(demo);
        let environment = begin(&run, demo, &[]).await?;
        let interrupted = tokio::select! {
            compared = self.claim_same(&mut run) => compared.map(|()| false)?,
            () = interrupted() => true,
        };
        let about = "after all scenarios memory and connections are those of fresh and warm services";
        let ending = Ending { key: "all", name: "all scenarios", about, environment, report: None, interrupted };
        let verdict = conclude(&ending, &mut run, demo).await;
        say(&verdict);
        Ok(verdict.passed)
    }

    async fn claim_same(&self, run: &mut ScenarioRun) -> anyhow::Result<()> {
        warm_up(run).await?;
        run.step("What the services use now").await;
        let end = Instant::now() + RELEASE_TIMEOUT;
        let now = loop {
            let now = Footprint::minimum(run).await?;
            if self.leaked(&now).next().is_none() || Instant::now() >= end {
                break now;
            }
            sleep(Duration::from_secs(1)).await;
        };
        for (what, after) in &now.0 {
            let before = self.0.get(what).copied().unwrap_or_default();
            run.claim(&format!("{}, before {}", describe(what, *after), amount(what, before)), self.fits(what, *after));
        }
        Ok(())
    }

    async fn minimum(run: &ScenarioRun) -> anyhow::Result<Self> {
        let mut connection = audit::connect_database(&run.stores.database_url).await?;
        let mut minimum = Footprint::measure(run, &mut connection).await?;
        for _ in 1..SAMPLES {
            sleep(Duration::from_millis(50)).await;
            let now = Footprint::measure(run, &mut connection).await?;
            minimum.0.retain(|what, _| now.0.contains_key(what));
            minimum.0.iter_mut().for_each(|(what, value)| *value = value.min(now.0[what]));
        }
        Ok(minimum)
    }

    async fn measure(run: &ScenarioRun, connection: &mut PgConnection) -> anyhow::Result<Self> {
        let mut occupied = BTreeMap::new();
        let mut open = connections(connection).await?;
        for service in SERVICES {
            let name = service.0;
            let required =
                |what, value: Option<f64>| value.with_context(|| format!("{name} does not report its {what}"));
            let bytes = required("memory", run.suite.metric(service, MEMORY).await?)?;
            let pooled = required("connections", run.suite.metric(service, POOLED).await?)?;
            let used = run.suite.labelled_metric(service, POOLED, r#"state="used""#).await?;
            let opened = open.remove(&format!("{name}_service")).unwrap_or_default() as f64;
            occupied.insert(format!("memory of {name}"), bytes);
            occupied.insert(format!("connections of {name} in use"), required("connections in use", used)?);
            occupied.insert(format!("connections of {name} unknown to every pool"), (opened - pooled).max(0.0));
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
}

fn unpaused_run(demo: &Demo<'_>) -> ScenarioRun {
    ScenarioRun { pause: StepPause::Off, ..run::scenario_run(demo) }
}

/// The number of connections to the suite's database per role, without the auditor's.
async fn connections(connection: &mut PgConnection) -> sqlx::Result<BTreeMap<String, i64>> {
    let query = sqlx::query_as(
        "select usename::text, count(*)
        from pg_stat_activity
        where datname = current_database() and usename <> current_user
        group by usename",
    );
    let counted: Vec<(String, i64)> = query.fetch_all(connection).await?;
    Ok(counted.into_iter().collect())
}

async fn warm_up(run: &mut ScenarioRun) -> anyhow::Result<()> {
    let sku = run.step_with_product("Warming up", WARM_UP as i64, 1_000).await?;
    let placed = run.place_all(&sku, WARM_UP, "tok_visa").await?;
    run.claim_tally(&placed, WARM_UP, RELEASE_TIMEOUT).await
}

/// Less is no leak, and neither is one more connection.
fn fits(what: &str, before: f64, after: f64) -> bool {
    let more = if what.starts_with("memory") { before * MEMORY_TOLERANCE } else { (before * TOLERANCE).max(1.0) };
    after <= before + more
}

fn describe(what: &str, value: f64) -> String {
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
    fn a_quarter_more_memory_is_no_leak() {
        assert!(fits("memory of order", 100.0, 125.0) && fits("memory of order", 100.0, 10.0));
        assert!(!fits("memory of order", 100.0, 126.0));
    }

    #[test]
    fn a_new_name_is_a_leak() {
        let footprint = |of: &[(&str, f64)]| Footprint(of.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect());
        let before = footprint(&[("a", 10.0), ("b", 10.0)]);
        let leaked = |now: &Footprint| before.leaked(now).cloned().collect::<Vec<_>>();
        assert_eq!(leaked(&footprint(&[("a", 10.0), ("b", 10.5)])), Vec::<String>::new());
        assert_eq!(leaked(&footprint(&[("a", 20.0), ("b", 10.0)])), ["a"]);
        assert_eq!(leaked(&footprint(&[("a", 10.0), ("c", 10.0)])), ["c"]);
    }
}
