//! One run of chaos: clients order, nemeses strike by a seeded schedule, somebody looks at money and stock every second; in
//! the end everything is healed and settles, and the database is held against what the clients were told.

mod finish;
mod strikes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use console::audit::Options;
use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Settings, Stage, conservation,
    history::History,
    nemesis::{Nemesis, Tally},
    report::{Demands, Report},
    schedule::schedule,
    workload::{self, PRODUCTS, Pressure, SCARCE, Wishes, plenty_sku, scarce_sku},
};

/// No supply but ours. Events of versions that do not exist are forged, and nobody is going to read them.
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
    /// The longest that a phase may last, unless its nemesis cannot do with less.
    pub longest_phase: Duration,
    /// Of a saga, and of its compensation; production's, when none is given.
    pub deadline: Option<&'static str>,
    /// How long the suite may need to come to rest after everything is healed.
    pub settle: Duration,
    pub demands: Demands,
}

pub async fn chaos(settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let deadlines = plan.deadline.map(|time| [("SAGA_DEADLINE", time), ("COMPENSATION_DEADLINE", time)]);
    let deadlines = deadlines.as_ref().map_or(&[][..], |deadlines| deadlines);
    let stage = Stage::start(&settings.clone().with(deadlines).with(SETTINGS)).await?;
    supply(&stage).await?;
    let outcome = run(&stage, settings, plan).await;
    stage.save_logs().await?;
    outcome
}

/// Puts everything on sale that clients want.
pub async fn supply(stage: &Stage) -> anyhow::Result<()> {
    for n in 0..PRODUCTS {
        stage.sell(&plenty_sku(n), 500 + 25 * n as i64, 10_000_000).await?;
    }
    for n in 0..SCARCE {
        stage.sell(&scarce_sku(n), 900, 25).await?;
    }
    Ok(())
}

async fn run(stage: &Arc<Stage>, settings: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let phases = schedule(&plan.nemeses, plan.length, plan.longest_phase, &mut rng);
    let (history, pressure, tally) =
        (Arc::new(History::default()), Arc::new(Pressure::default()), Arc::new(Tally::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let supervisor = tokio::spawn(supervise(Arc::clone(stage), Arc::clone(&history), Arc::clone(&stop)));
    let database_url = stage.database_url.clone();
    let watcher = tokio::spawn(conservation::watch(database_url, Arc::clone(&history), Arc::clone(&stop)));
    let wishes = Wishes::new(plan.seed);
    let orders =
        workload::send_orders(Arc::clone(stage), Arc::clone(&history), Arc::clone(&pressure), plan.rate, wishes);
    let orders = tokio::spawn(orders);
    let prices = tokio::spawn(workload::change_prices(Arc::clone(stage), Arc::clone(&pressure), plan.seed));
    let field = strikes::Field {
        stage: Arc::clone(stage),
        history: Arc::clone(&history),
        pressure: Arc::clone(&pressure),
        tally: Arc::clone(&tally),
    };
    let struck = strikes::strike_all(&field, &phases).await;
    if let Some(left) = plan.length.checked_sub(history.now()) {
        tokio::time::sleep(left).await;
    }
    pressure.stop();
    let ended_ms = history.now_ms();
    println!("all is healed; waiting until the suite has come to rest");
    let settling = Instant::now();
    let mut unwell: Vec<String> =
        stage.ready(plan.settle).await.err().iter().map(|error| format!("{error:#}")).collect();
    let (clients, changed) = (orders.await?, prices.await?);
    anyhow::ensure!(changed > 0, "no price could be changed");
    workload::wait_for_clients(clients, &pressure, plan.settle).await;
    let deleted = tally.deleted().clone();
    let audit = stage
        .audit(Options { settle: plan.settle, allow_dead_letters: true, whole: true, deleted, at_work: false })
        .await;
    unwell.extend(audit.as_ref().err().map(|error| format!("no audit: {error:#}")));
    let settled = settling.elapsed();
    stop.store(true, Ordering::Relaxed);
    let (unplanned_ends, conservation) = (supervisor.await?, watcher.await?);
    history.save(&settings.logs.join("history.jsonl"))?;
    let evidence = finish::Evidence {
        struck,
        history,
        tally,
        conservation,
        audit: audit.ok(),
        unwell,
        settled,
        ended_ms,
        unplanned_ends,
    };
    finish::judge(stage, plan, evidence).await
}

/// Does what an orchestrator does: a process that ends by itself is started again. Returns which did, and when.
async fn supervise(stage: Arc<Stage>, history: Arc<History>, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut ended = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for replica in &stage.replicas {
            let last_words = replica.program.log().await.lines().last().unwrap_or_default().to_owned();
            match replica.program.supervise().await {
                Ok(false) => {}
                Ok(true) => {
                    let at = history.now().as_secs();
                    ended.push(format!("{at} s: {}: {last_words}", replica.program.name));
                }
                Err(error) => ended.push(format!("{} cannot be started: {error:#}", replica.program.name)),
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ended
}
