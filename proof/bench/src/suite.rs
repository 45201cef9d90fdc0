//! The suite that is measured, controlled by the scripts: recreated, started and stopped, put under load, audited.

use std::{fs, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use contracts::SERVICES;
use sqlx::{Connection, PgConnection};
use testkit::Monitor;
use tokio::process::Command;

use crate::{load::Load, processes::Processes, sink::Sink};

/// The services that take part in sagas, in the order in which they are started.
pub(crate) fn services() -> Vec<&'static str> {
    SERVICES.iter().rev().map(|service| service.0).collect()
}

/// The orders of all figures: all are confirmed, and each has two lines.
const ORDERS: [&str; 8] = ["--declines", "0", "--cancels", "0", "--scarce", "0", "--lines", "2"];

/// The length of a turn, and of what is not measured before it, in seconds.
const TURN: usize = 5;
const WARM_UP: usize = 2;

/// The location of the suite, and the settings of the measurements.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MeasuredSuite {
    /// The folder of the scripts that start and stop the suite
    #[arg(long, env = "BENCH_SCRIPTS", default_value = "scripts")]
    scripts: PathBuf,
    /// The run directory of the suite that is measured; its contents are deleted
    #[arg(long, env = "SUITE_RUN_DIR")]
    run_dir: PathBuf,
    #[arg(long, env = "PGBENCH_BIN", default_value = "pgbench")]
    pgbench: PathBuf,
    /// The folder of the programs as users get them, with faults built in
    #[arg(long, env = "SHIPPED_BIN_DIR", default_value = "target/shipped")]
    pub(crate) shipped: String,
    /// Short and few measurements: a smoke test, not figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of open orders while the suite is saturated
    #[arg(long, default_value_t = 600)]
    in_flight: u32,
    /// Receives the spans of one trace in a hundred, unless a part sets another ratio.
    #[arg(skip)]
    pub(crate) collector: Option<Arc<Sink>>,
}

impl MeasuredSuite {
    /// The length of a measurement, in seconds.
    pub(crate) fn time(&self, usual: u64, quick: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { usual })
    }

    /// The number of measurements.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.quick { 2 } else { usual }
    }

    /// Another suite with the same settings, which is compared with this one by turns. Both run all the time; the vacuums and
    /// checkpoints of one may fall into the turns of the other. It is wiped before the next part.
    pub(crate) fn beside(&self, name: &str) -> Self {
        MeasuredSuite { run_dir: self.run_dir.join("beside").join(name), ..self.clone() }
    }

    /// The same suite, which sends its spans elsewhere, or nowhere.
    pub(crate) fn with_collector(self, collector: Option<Sink>) -> Self {
        MeasuredSuite { collector: collector.map(Arc::new), ..self }
    }

    /// Recreates the suite, without any data.
    pub(crate) async fn fresh_suite(&self) -> anyhow::Result<()> {
        run(&mut self.script("bench.d/fresh")).await.map(drop)
    }

    /// Replaces the suite by a cluster, without any data; `sync` is JetStream's `sync_interval`.
    pub(crate) async fn fresh_cluster(&self, sync: &str) -> anyhow::Result<()> {
        run(self.script("bench.d/fresh").arg("--cluster").env("NATS_SYNC_INTERVAL", sync)).await.map(drop)
    }

    /// Runs `./scripts/service VERB` for some processes. The settings apply until the next start.
    pub(crate) async fn service(&self, verb: &str, names: &[&str], settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut command = self.script("service");
        run(command.arg(verb).args(names).envs(settings.iter().copied())).await.map(drop)
    }

    /// Saturates the suite; the warm-up is not measured.
    pub(crate) async fn saturate(&self, warm_up: Duration, time: Duration, more: &[&str]) -> anyhow::Result<Load> {
        let in_flight = self.in_flight.to_string();
        let mut arguments = vec!["--in-flight", &in_flight];
        arguments.extend(more);
        self.load(warm_up, time, &arguments).await
    }

    /// Sagas per second in five seconds of saturation, after two that are not measured. The machine's speed changes within half a
    /// minute, so variants that are compared take short turns, and many.
    pub(crate) async fn a_turn(&self, more: &[&str]) -> anyhow::Result<f64> {
        self.a_turn_after(WARM_UP, more).await
    }

    /// The same after another warm-up, in seconds.
    pub(crate) async fn a_turn_after(&self, warm_up: usize, more: &[&str]) -> anyhow::Result<f64> {
        let time = Duration::from_secs((warm_up + TURN) as u64);
        let load = self.saturate(Duration::ZERO, time, more).await?;
        // Seconds of the clock: orders may stop to end, and to be placed, before the turn is over.
        let measured = load.ended_in_second.get(warm_up..warm_up + TURN).context("the load ended early")?;
        Ok(f64::from(measured.iter().sum::<u32>()) / TURN as f64)
    }

    /// Puts the suite under load. The warm-up, which is not measured, is added to the time.
    ///
    /// # Errors
    /// Also when an order ended differently than it should.
    pub(crate) async fn load(&self, warm_up: Duration, time: Duration, more: &[&str]) -> anyhow::Result<Load> {
        let load = self.load_whatever_ends(warm_up, time, more).await?;
        let (wrong, first) = (load.defects.len(), load.defects.first());
        ensure!(load.passed, "{wrong} of {} orders ended differently than they should: {first:?}", load.orders);
        Ok(load)
    }

    /// The same, where something is broken meanwhile, so that orders may be cancelled.
    pub(crate) async fn load_whatever_ends(
        &self,
        warm_up: Duration,
        time: Duration,
        more: &[&str],
    ) -> anyhow::Result<Load> {
        let file = self.run_dir.join("load.json");
        let _ = fs::remove_file(&file);
        let mut command = self.script("load");
        command.args(ORDERS).args(more).arg("--json").arg(&file);
        command.arg("--for").arg(format!("{}ms", (warm_up + time).as_millis()));
        command.arg("--warm-up").arg(format!("{}ms", warm_up.as_millis()));
        let output = command.output().await?;
        let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let text =
            fs::read_to_string(&file).with_context(|| format!("the load generator wrote no result: {}", said()))?;
        serde_json::from_str(&text).context("the load's result cannot be read")
    }

    /// The comparison with hand-written SQL: sagas per second of a turn of pgbench, one event at a time, as single statements or
    /// with one call of a procedure.
    pub(crate) async fn yardstick(&self, one_call: bool) -> anyhow::Result<f64> {
        let statements = self.scripts.join("bench.d/yardstick.sql");
        let script = if one_call { self.run_dir.join("yardstick_call.sql") } else { statements };
        let mut command = Command::new(&self.pgbench);
        command
            .args([
                "--no-vacuum",
                "--protocol=prepared",
                "--client=32",
                "--jobs=2",
                "--host=127.0.0.1",
                "--username=postgres",
            ])
            .arg(format!("--time={}", WARM_UP + TURN))
            .arg("--progress=1")
            .arg(format!("--port={}", self.setting("POSTGRES_PORT")?))
            .arg(format!("--file={}", script.display()))
            .arg("yardstick")
            .env("PGPASSWORD", self.setting("POSTGRES_PASSWORD")?)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.context("cannot run pgbench")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pgbench failed: {said}");
        // progress: 3.0 s, 412.0 tps, lat 77.1 ms stddev 30.2, 0 failed
        let rate = |line: &str| line.strip_prefix("progress: ")?.split(' ').nth(2)?.parse::<f64>().ok();
        let rates: Vec<f64> = said.lines().filter_map(rate).skip(WARM_UP).take(TURN).collect();
        ensure!(rates.len() >= TURN - 1, "pgbench printed no rates: {said}");
        Ok(rates.iter().sum::<f64>() / rates.len() as f64)
    }

    /// A superuser's connection to the suite's database.
    pub(crate) async fn superuser(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect(&self.database("suite")?).await.context("the suite's database cannot be reached")
    }

    /// The superuser's URL of a database of the suite's server.
    pub(crate) fn database(&self, name: &str) -> anyhow::Result<String> {
        let (password, port) = (self.setting("POSTGRES_PASSWORD")?, self.setting("POSTGRES_PORT")?);
        Ok(format!("postgres://postgres:{password}@127.0.0.1:{port}/{name}"))
    }

    /// Whether the audit is clean; prints its report if it is not.
    pub(crate) async fn audit(&self) -> anyhow::Result<bool> {
        let output = self.script("audit").args(["--settle", "60s"]).output().await?;
        if !output.status.success() {
            eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.status.success())
    }

    /// The processes that run now.
    pub(crate) fn processes(&self) -> anyhow::Result<Processes> {
        Processes::of(&self.run_dir)
    }

    /// A setting chosen at the start of the suite, such as a port or a password. The values read here are never quoted.
    fn setting(&self, name: &str) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.run_dir.join("env"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(str::to_owned).with_context(|| format!("{name} is not known"))
    }

    /// A Prometheus that scrapes the suite every five seconds, as in production. Its data is discarded.
    pub(crate) async fn scraper(&self) -> anyhow::Result<Monitor> {
        let mut jobs = String::new();
        for name in services().iter().chain(&["gateway"]).map(|name| name.to_uppercase()) {
            let port = self.setting(&format!("{name}_PORT"))?;
            jobs += &format!("  - job_name: {name}\n    static_configs: [{{ targets: ['127.0.0.1:{port}'] }}]\n");
        }
        Monitor::prometheus(&format!("global: {{ scrape_interval: 5s }}\nscrape_configs:\n{jobs}")).await
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.scripts.join(name));
        command.env("SUITE_RUN_DIR", &self.run_dir).stdin(Stdio::null()).kill_on_drop(true);
        let collector = self.collector.as_ref().map_or("", |collector| collector.url());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).env("TRACE_SAMPLE_RATIO", "0.01");
        command
    }
}

async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().await.with_context(|| format!("cannot run {:?}", command.as_std()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "{:?} failed: {said}", command.as_std());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
