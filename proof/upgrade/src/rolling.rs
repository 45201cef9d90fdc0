//! The deployment, replica by replica, out and back, under load.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context;
use chaos::{
    Settings, Testbed,
    chaos::supply,
    conservation,
    verdict::{self, Violations},
    workload::{self, Run},
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

/// Replicas of each service: one of each build during the deployment.
pub const REPLICAS: usize = 2;
/// The deadlines are those of production.
const SETTINGS: &[(&str, &str)] = &[("REPLENISH_ENABLED", "false")];
/// The longest time without a reader of the new version, in which orders wait.
const LONGEST_WITHOUT_READER: Duration = Duration::from_secs(10);
/// Longer than an order's deadline, so that every order has ended by then.
const SETTLE: Duration = Duration::from_secs(90);

/// The build to roll out, and the load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The folder of the newer build's programs.
    pub newer: PathBuf,
    /// Orders a second.
    pub rate: u32,
    /// The duration of each mixture of the builds.
    pub hold: Duration,
    pub seed: u64,
}

/// Carries out the deployment, and judges it.
pub async fn roll_out_and_back(older: &Settings, plan: &Plan) -> anyhow::Result<Report> {
    let older = older.clone().with(SETTINGS);
    let newer = Settings { programs: plan.newer.clone(), ..older.clone() };
    let testbed = Testbed::start(&older).await?;
    supply(&testbed).await?;
    let deployment = Deployment { testbed: Arc::clone(&testbed), older, newer, hold: plan.hold, phases: Vec::new() };
    let outcome = under_load(deployment, plan).await;
    testbed.save_logs().await?;
    outcome
}

async fn under_load(mut deployment: Deployment, plan: &Plan) -> anyhow::Result<Report> {
    let testbed = Arc::clone(&deployment.testbed);
    let run = Run::on(&testbed);
    let watcher = tokio::spawn(conservation::watch(Arc::clone(&run)));
    let orders = tokio::spawn(workload::send_orders(Arc::clone(&run), plan.rate, plan.seed));
    let prices = tokio::spawn(workload::change_prices(Arc::clone(&run), plan.seed));
    let rolled = deployment.roll_out_and_back().await;
    run.pressure.stop();
    let seconds = run.history.now().as_secs_f64();
    workload::wait_for_clients(orders.await?, &run, SETTLE).await;
    prices.await?;
    rolled?;
    // As in docs/upgrades.md: the older build never takes the steps that the newer one has left owed.
    let give_up = "select saga.forgive_owed('inventory', 'the build with the step was rolled back')";
    let given_up: i64 = sqlx::query_scalar(give_up).fetch_one(&testbed.pool).await?;
    let audit = testbed.audit(Options { settle: SETTLE, whole: true, ..Options::default() }).await?;
    run.over.store(true, Ordering::Relaxed);
    let conservation = watcher.await?;
    run.history.save(&deployment.older.logs.join("history.jsonl"))?;
    let records = run.history.records();
    let ended = verdict::ended_orders(&testbed.pool).await?;
    let dead_letters = verdict::unexpected_dead_letters(&testbed.pool).await?;
    let findings = Violations { dead_letters, ..verdict::compare(&records, &ended) };
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
        evidence: evidence::of(&testbed.pool, &deployment.phases, given_up).await?,
        phases: deployment.phases.iter().map(|phase| phase.report(&ended)).collect(),
    })
}

/// The suite, and its builds.
struct Deployment {
    testbed: Arc<Testbed>,
    older: Settings,
    newer: Settings,
    hold: Duration,
    phases: Vec<Phase>,
}

impl Deployment {
    async fn roll_out_and_back(&mut self) -> anyhow::Result<()> {
        self.phase("older build", self.hold).await?;
        self.testbed.provision_for(&self.newer).await?;
        // The wrong order, on purpose: for a while no replica can read its events.
        self.roll_out(INVENTORY, 0).await?;
        // Of two replicas one consumes: the other one restarts, so that it is the newer one.
        self.roll_back(INVENTORY, 1).await?;
        self.phase("new version without a reader", self.hold.min(LONGEST_WITHOUT_READER)).await?;
        self.roll_out(PAYMENT, 0).await?;
        self.roll_out(ORDER, 0).await?;
        self.phase("side by side", self.hold * 2).await?;
        self.roll_out(PAYMENT, 1).await?;
        // And now it is the older one.
        self.roll_out(INVENTORY, 0).await?;
        self.phase(evidence::ONLY_NEW_READERS, self.hold).await?;
        self.roll_out(ORDER, 1).await?;
        self.roll_out(INVENTORY, 1).await?;
        self.phase("newer build", self.hold).await?;
        for service in SERVICES {
            self.roll_back(service, 0).await?;
        }
        self.phase(evidence::LAST_OF_NEW_STEP, self.hold * 2).await?;
        // The publisher of the new version goes first, and its last reader when all events are read.
        self.roll_back(INVENTORY, 1).await?;
        self.wait_until_all_is_read().await?;
        self.roll_back(PAYMENT, 1).await?;
        self.roll_back(ORDER, 1).await?;
        self.testbed.provision_for(&self.older).await?;
        self.phase("older build again", self.hold).await
    }

    async fn roll_out(&self, service: Service, number: usize) -> anyhow::Result<()> {
        self.testbed.replace(&self.testbed.replicas_of(service)[number], &self.newer.programs).await
    }

    async fn roll_back(&self, service: Service, number: usize) -> anyhow::Result<()> {
        self.testbed.replace(&self.testbed.replicas_of(service)[number], &self.older.programs).await
    }

    async fn phase(&mut self, name: &'static str, length: Duration) -> anyhow::Result<()> {
        println!("phase: {name}");
        let began = self.now().await?;
        tokio::time::sleep(length).await;
        self.phases.push(Phase { name, began, ended: self.now().await? });
        Ok(())
    }

    async fn now(&self) -> Result<OffsetDateTime, sqlx::Error> {
        sqlx::query_scalar("select clock_timestamp()").fetch_one(&self.testbed.pool).await
    }

    async fn wait_until_all_is_read(&self) -> anyhow::Result<()> {
        eventually(SETTLE, async || evidence::unread(&self.testbed.pool).await.map(|events| events == 0))
            .await
            .context("events in the new version were not read, so their last reader could not be replaced")
    }
}
