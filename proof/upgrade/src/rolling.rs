//! The deployment, replica by replica, out and back, with orders arriving all the time.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use chaos::{
    Settings, Stage,
    chaos::supply,
    conservation,
    history::History,
    verdict::{self, Findings},
    workload::{self, Pressure, Wishes},
};
use console::audit::Options;
use contracts::{INVENTORY, ORDER, PAYMENT, SERVICES};
use saga::Service;
use testkit::eventually;
use time::OffsetDateTime;

use crate::{
    evidence,
    report::{Phase, Report},
};

/// Processes of each service: one of each build while the deployment goes on.
pub const REPLICAS: usize = 2;
/// The deadlines are those of production.
const SETTINGS: &[(&str, &str)] = &[("REPLENISH_ENABLED", "false")];
/// How long events in the new version may stay without a reader: until the first reader is there, orders wait.
const LONGEST_WITHOUT_READER: Duration = Duration::from_secs(10);
/// Longer than an order's deadline: by then whatever was under way has ended.
const SETTLE: Duration = Duration::from_secs(90);

/// What is rolled out, under which load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The folder of the newer build's programs.
    pub newer: PathBuf,
    /// Orders a second.
    pub rate: u32,
    /// How long each mixture of the builds is left at work.
    pub hold: Duration,
    pub seed: u64,
}

/// Does it, and judges it.
pub async fn roll_out_and_back(older: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let older = older.clone().with(SETTINGS);
    let newer = Settings { programs: plan.newer.clone(), ..older.clone() };
    let stage = Stage::start(&older).await?;
    supply(&stage).await?;
    let deployment = Deployment { stage: Arc::clone(&stage), older, newer, hold: plan.hold, phases: Vec::new() };
    let outcome = under_load(deployment, plan).await;
    stage.save_logs().await?;
    outcome
}

async fn under_load(mut deployment: Deployment, plan: &Plan) -> anyhow::Result<Report> {
    let stage = Arc::clone(&deployment.stage);
    let (history, pressure, stop) =
        (Arc::new(History::default()), Arc::new(Pressure::default()), Arc::new(AtomicBool::new(false)));
    let watcher = conservation::watch(stage.database_url.clone(), Arc::clone(&history), Arc::clone(&stop));
    let watcher = tokio::spawn(watcher);
    let orders = workload::send_orders(
        Arc::clone(&stage),
        Arc::clone(&history),
        Arc::clone(&pressure),
        plan.rate,
        Wishes::new(plan.seed),
    );
    let orders = tokio::spawn(orders);
    let prices = tokio::spawn(workload::change_prices(Arc::clone(&stage), Arc::clone(&pressure), plan.seed));
    let rolled = deployment.roll_out_and_back().await;
    pressure.stop();
    let seconds = history.now().as_secs_f64();
    workload::wait_for_clients(orders.await?, &pressure, SETTLE).await;
    prices.await?;
    rolled?;
    let audit = stage.audit(Options { settle: SETTLE, whole: true, ..Options::default() }).await?;
    stop.store(true, Ordering::Relaxed);
    let conservation = watcher.await?;
    history.save(&deployment.older.logs.join("history.jsonl"))?;
    let records = history.records();
    let ended = verdict::ended_orders(&stage.pool).await?;
    let dead_letters = verdict::unexpected_dead_letters(&stage.pool).await?;
    let findings = Findings { dead_letters, ..verdict::compare(&records, &ended) };
    let cancelled = verdict::cancelled_without_cause(&records, &ended);
    Ok(Report {
        seed: plan.seed,
        rate: plan.rate,
        seconds,
        orders: records.len(),
        cancelled: cancelled.iter().map(|(order, _)| order.order_id.to_string()).collect(),
        findings,
        drift: conservation.violations,
        audit: verdict::violations(&audit),
        evidence: evidence::of(&stage.pool, &deployment.phases).await?,
        phases: deployment.phases.iter().map(|phase| phase.told(&ended)).collect(),
    })
}

/// The suite, and the builds that it consists of.
struct Deployment {
    stage: Arc<Stage>,
    older: Settings,
    newer: Settings,
    hold: Duration,
    phases: Vec<Phase>,
}

impl Deployment {
    async fn roll_out_and_back(&mut self) -> anyhow::Result<()> {
        self.phase("older build", self.hold).await?;
        self.stage.provision_for(&self.newer).await?;
        // The wrong order, on purpose: for a while nobody can read what it publishes.
        self.roll_out(INVENTORY, 0).await?;
        self.phase("new version without a reader", self.hold.min(LONGEST_WITHOUT_READER)).await?;
        self.roll_out(PAYMENT, 0).await?;
        self.roll_out(ORDER, 0).await?;
        self.phase("side by side", self.hold * 2).await?;
        self.roll_out(PAYMENT, 1).await?;
        self.phase(evidence::ONLY_NEW_READERS, self.hold).await?;
        self.roll_out(ORDER, 1).await?;
        self.roll_out(INVENTORY, 1).await?;
        self.phase("newer build", self.hold).await?;
        for service in SERVICES {
            self.roll_back(service, 0).await?;
        }
        self.phase("side by side again", self.hold * 2).await?;
        // Whoever publishes the new version goes first, its last reader when all of it is read.
        self.roll_back(INVENTORY, 1).await?;
        self.wait_until_all_is_read().await?;
        self.roll_back(PAYMENT, 1).await?;
        self.roll_back(ORDER, 1).await?;
        self.stage.provision_for(&self.older).await?;
        self.phase("older build again", self.hold).await
    }

    async fn roll_out(&self, service: Service, number: usize) -> anyhow::Result<()> {
        self.stage.replace(&self.stage.replicas_of(service)[number], &self.newer.programs).await
    }

    async fn roll_back(&self, service: Service, number: usize) -> anyhow::Result<()> {
        self.stage.replace(&self.stage.replicas_of(service)[number], &self.older.programs).await
    }

    async fn phase(&mut self, name: &'static str, length: Duration) -> anyhow::Result<()> {
        println!("phase: {name}");
        let began = self.now().await?;
        tokio::time::sleep(length).await;
        self.phases.push(Phase { name, began, ended: self.now().await? });
        Ok(())
    }

    async fn now(&self) -> Result<OffsetDateTime, sqlx::Error> {
        sqlx::query_scalar("select clock_timestamp()").fetch_one(&self.stage.pool).await
    }

    async fn wait_until_all_is_read(&self) -> anyhow::Result<()> {
        eventually(SETTLE, async || evidence::unread(&self.stage.pool).await.map(|events| events == 0))
            .await
            .context("the last reader of the new version could not leave")
    }
}
