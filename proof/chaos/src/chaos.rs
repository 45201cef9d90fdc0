//! One run of chaos: clients place orders, nemeses strike by a seeded schedule, and money and stock are checked every second. At
//! the end everything is healed, the suite comes to rest, and the database is compared with the answers that the clients got.

mod finish;
mod strikes;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use console::audit::Options;
use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Settings, Testbed, conservation,
    nemesis::Nemesis,
    report::{Demands, Report},
    schedule::schedule,
    workload::{self, PRODUCTS, Run, SCARCE, plenty_sku, scarce_sku},
};

/// Only the run's own products are supplied. Events of unknown versions are forged, and no replica will ever read them.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("REPLENISH_ENABLED", "false"),
    ("CATALOGUE_REBUILD_EVERY", "5s"),
    ("UNKNOWN_VERSION_WAIT", "3s"),
];

/// What a run consists of.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub length: Duration,
    /// Orders a second.
    pub rate: u32,
    pub nemeses: Vec<&'static Nemesis>,
    /// The longest phase, unless its nemesis needs more.
    pub longest_phase: Duration,
    /// The deadline of a saga, and of its compensation; without it, that of production.
    pub deadline: Option<&'static str>,
    /// The time limit for the suite to come to rest after everything is healed.
    pub settle: Duration,
    pub demands: Demands,
}

pub async fn chaos(settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let deadlines = plan.deadline.map(|time| [("SAGA_DEADLINE", time), ("COMPENSATION_DEADLINE", time)]);
    let deadlines = deadlines.as_ref().map_or(&[][..], |deadlines| deadlines);
    let testbed = Testbed::start(&settings.clone().with(deadlines).with(SETTINGS)).await?;
    supply(&testbed).await?;
    let outcome = run(&testbed, settings, plan).await;
    testbed.save_logs().await?;
    outcome
}

/// Creates all products that clients order.
pub async fn supply(testbed: &Testbed) -> anyhow::Result<()> {
    for n in 0..PRODUCTS {
        testbed.sell(&plenty_sku(n), 500 + 25 * n as i64, 10_000_000).await?;
    }
    for n in 0..SCARCE {
        testbed.sell(&scarce_sku(n), 900, 25).await?;
    }
    Ok(())
}

async fn run(testbed: &Arc<Testbed>, settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let phases = schedule(&plan.nemeses, plan.length, plan.longest_phase, &mut rng);
    let run = Run::on(testbed);
    let supervisor = tokio::spawn(supervise(Arc::clone(&run)));
    let watcher = tokio::spawn(conservation::watch(Arc::clone(&run)));
    let orders = tokio::spawn(workload::send_orders(Arc::clone(&run), plan.rate, plan.seed));
    let prices = tokio::spawn(workload::change_prices(Arc::clone(&run), plan.seed));
    let struck = strikes::strike_all(&run, &phases).await;
    if let Some(left) = plan.length.checked_sub(run.history.now()) {
        tokio::time::sleep(left).await;
    }
    run.pressure.stop();
    let ended_ms = run.history.now_ms();
    println!("everything is healed; waiting until the suite is at rest");
    let settling = Instant::now();
    let mut unwell: Vec<String> =
        testbed.ready(plan.settle).await.err().iter().map(|error| format!("{error:#}")).collect();
    let (clients, changed) = (orders.await?, prices.await?);
    anyhow::ensure!(changed > 0, "no price could be changed");
    workload::wait_for_clients(clients, &run, plan.settle).await;
    let deleted = run.tally.deleted().clone();
    let audit = testbed
        .audit(Options { settle: plan.settle, allow_dead_letters: true, whole: true, deleted, at_work: false })
        .await;
    unwell.extend(audit.as_ref().err().map(|error| format!("no audit: {error:#}")));
    let settled = settling.elapsed();
    run.over.store(true, Ordering::Relaxed);
    let (unplanned_ends, conservation) = (supervisor.await?, watcher.await?);
    run.history.save(&settings.logs.join("history.jsonl"))?;
    let evidence =
        finish::Evidence { struck, conservation, audit: audit.ok(), unwell, settled, ended_ms, unplanned_ends };
    finish::judge(&run, plan, evidence).await
}

/// Acts as an orchestrator: restarts processes that end unexpectedly. Returns them, with the times.
async fn supervise(run: Arc<Run>) -> Vec<String> {
    let mut ended = Vec::new();
    while !run.is_over() {
        for replica in &run.testbed.replicas {
            let last_words = replica.program.log().await.lines().last().unwrap_or_default().to_owned();
            match replica.program.supervise().await {
                Ok(false) => {}
                Ok(true) => {
                    let at = run.history.now().as_secs();
                    ended.push(format!("{at} s: {}: {last_words}", replica.program.name));
                }
                Err(error) => ended.push(format!("{} cannot be started: {error:#}", replica.program.name)),
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ended
}
