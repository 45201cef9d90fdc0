//! The real programs, with a Prometheus that scrapes them every second, an Alertmanager, and the console that audits
//! them and receives the alerts. The rules are the repository's own.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT};
use serde_json::{Value, json};
use suite_tests::{Client, Collector, PrometheusApi, Running, Stage};
use testkit::{Alertmanager, Process, Prometheus, bin, eventually, free_port};

use super::boards::path;
use crate::Test;

const LIMIT: Duration = Duration::from_secs(30);
/// Names further targets of Prometheus.
const OTHERS: &str = "others.json";

/// Everything that takes a minute as a rule takes seconds here.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("METRICS_EVERY", "1s"),
    ("SAGA_DEADLINE", "4s"),
    // An answer that comes after the deadline, but comes: a time-out without any failure.
    ("GATEWAY_TIMEOUT", "10s"),
    ("COMPENSATION_DEADLINE", "500ms"),
    ("COMPENSATION_CHECK_EVERY", "200ms"),
    ("TIMEOUT_CHECK_EVERY", "500ms"),
    ("RECONCILE_EVERY", "1s"),
    ("TRACE_SAMPLE_RATIO", "1.0"),
    (
        "RESILIENCE",
        "process_payment.open_for=2s,reserve_stock.initial=20ms,release_stock.initial=20ms,release_stock.open_for=500ms",
    ),
];

pub(super) struct Monitored {
    // The processes go before the stage that they use.
    pub(super) inventory_process: RefCell<Process>,
    _processes: [Process; 3],
    pub(super) order: Client,
    pub(super) inventory: Client,
    pub(super) payment: Client,
    pub(super) console: Client,
    pub(super) api: PrometheusApi,
    pub(super) alertmanager: Client,
    /// When Prometheus began, in seconds since 1970.
    pub(super) began: f64,
    pub(super) stage: Stage,
    /// The alerts that were seen where they arrive.
    pub(super) fired: RefCell<BTreeSet<String>>,
    _prometheus: Prometheus,
    _alertmanager: Alertmanager,
    /// The rules, and what else is scraped.
    folder: tempfile::TempDir,
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Monitored {
    pub(super) async fn start() -> anyhow::Result<Monitored> {
        let stage = Stage::new().await?;
        // Only what is traced can be an example of a measurement.
        let collector = Collector::start().await?;
        let mut settings = SETTINGS.to_vec();
        settings.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url));
        let inventory = Running::start(&stage, INVENTORY, &settings).await?;
        let inventory_url = inventory.client.base().to_owned();
        settings.push(("INVENTORY_URL", &inventory_url));
        let order = Running::start(&stage, ORDER, &settings).await?;
        let payment = Running::start(&stage, PAYMENT, &settings).await?;
        let (console, console_url) = start_console(&stage)?;
        let alertmanager = Alertmanager::start(&alertmanager_config(&console_url)?).await?;
        let rules = impatient_rules()?;
        let targets = [
            ("order", order.client.base()),
            ("inventory", inventory.client.base()),
            ("payment", payment.client.base()),
            ("gateway_simulator", &stage.gateway.base_url),
            ("console", &console_url),
        ];
        let began = now();
        let prometheus = Prometheus::start(&prometheus_config(&targets, &alertmanager.url(), &rules)).await?;
        let api = PrometheusApi::new(&prometheus.url());
        let monitored = Monitored {
            inventory_process: RefCell::new(inventory.process),
            _processes: [order.process, payment.process, console],
            order: order.client,
            inventory: inventory.client,
            payment: payment.client,
            console: Client::new(&console_url),
            api,
            alertmanager: Client::new(&alertmanager.url()),
            began,
            stage,
            fired: RefCell::default(),
            _prometheus: prometheus,
            _alertmanager: alertmanager,
            folder: rules,
        };
        monitored.all_are_scraped().await?;
        Ok(monitored)
    }

    async fn all_are_scraped(&self) -> Test {
        eventually(LIMIT, async || {
            let targets = self.api.targets().await?;
            ensure!(targets.len() == 5, "only {targets:?}");
            let failing: Vec<_> = targets.iter().filter(|(_, error)| error.is_some()).collect();
            ensure!(failing.is_empty(), "{failing:?}");
            anyhow::Ok(())
        })
        .await
    }

    /// Prometheus scrapes one more replica of a service, until [`Monitored::scrape_no_other`].
    pub(super) fn scrape_too(&self, job: &str, url: &str) -> Test {
        let targets = json!([{"targets": [host(url)], "labels": {"job": job}}]);
        Ok(fs::write(self.folder.path().join(OTHERS), targets.to_string())?)
    }

    pub(super) fn scrape_no_other(&self) -> Test {
        Ok(fs::write(self.folder.path().join(OTHERS), "[]")?)
    }

    /// Puts a product on sale and waits until order knows it.
    pub(super) async fn sell(&self, sku: &str, quantity: i64) -> Test {
        self.inventory.create_product(sku, 1_999, quantity).await?.expect(201)?;
        let path = format!("/api/products/{sku}");
        eventually(LIMIT, async || self.order.get(&path).await.is_ok_and(|answer| answer.status == 200)).await
    }

    /// The names of the alerts that Alertmanager has now.
    pub(super) async fn alerts(&self) -> anyhow::Result<BTreeSet<String>> {
        let alerts = self.alertmanager.get("/api/v2/alerts").await?.expect(200)?;
        Ok(names(&alerts, |alert| &alert["labels"]["alertname"]))
    }

    /// The names of the alerts that have arrived at the console, those that are over too.
    pub(super) async fn received(&self) -> anyhow::Result<BTreeSet<String>> {
        let alerts = self.console.get("/alerts").await?.expect(200)?;
        Ok(names(&alerts["items"], |alert| &alert["name"]))
    }
}

fn names(alerts: &Value, name: impl Fn(&Value) -> &Value) -> BTreeSet<String> {
    alerts.as_array().into_iter().flatten().filter_map(|alert| name(alert).as_str().map(str::to_owned)).collect()
}

fn start_console(stage: &Stage) -> anyhow::Result<(Process, String)> {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(bin("console")?);
    command
        .args(["audit", "--watch", "--every", "1s", "--listen", &address, "--nats-user", ""])
        .args(["--database-url", &stage.database.url_for("auditor"), "--nats-url", &stage.nats_url])
        .args(["--gateway-url", &stage.gateway.base_url]);
    Ok((Process::start(&mut command)?, format!("http://{address}")))
}

/// The repository's rules, but for how long a condition has to last before its alert fires, and for conditions that need
/// five minutes: nobody waits that long here.
fn impatient_rules() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for entry in fs::read_dir(path("grafana/alerts"))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "yml") {
            let rules = fs::read_to_string(&file)?;
            let lines = rules.lines().map(|line| {
                let indent = line.len() - line.trim_start().len();
                if line.trim_start().starts_with("for: ") {
                    format!("{}for: 1s", &line[..indent])
                } else if let Some(condition) = line.strip_suffix(" > 300") {
                    format!("{condition} > 20")
                } else {
                    line.to_owned()
                }
            });
            let copy = folder.path().join(file.file_name().context("a file without a name")?);
            fs::write(copy, lines.collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(folder)
}

/// The repository's routes and groups, but nobody waits for a group to fill, and the receiver is the console of this test.
fn alertmanager_config(console_url: &str) -> anyhow::Result<String> {
    let config = fs::read_to_string(path("docker/alertmanager.yml"))?;
    let lines = config.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        match line.trim_start().split_once(": ") {
            Some((key @ ("group_wait" | "group_interval"), _)) => format!("{indent}{key}: 1s"),
            Some((key @ ("url" | "- url"), _)) => format!("{indent}{key}: {console_url}/alerts"),
            _ => line.to_owned(),
        }
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn host(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}

fn prometheus_config(targets: &[(&str, &str)], alertmanager: &str, rules: &tempfile::TempDir) -> String {
    let jobs = targets
        .iter()
        .map(|(job, url)| format!("  - {{job_name: {job}, static_configs: [{{targets: [\"{}\"]}}]}}\n", host(url)));
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: [\"{}/*.yml\"]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: [\"{}\"]}}]}}]}}\n\
         scrape_configs:\n{}  - {{job_name: others, file_sd_configs: [{{files: [\"{}/{OTHERS}\"], refresh_interval: 1s}}]}}\n",
        rules.path().display(),
        host(alertmanager),
        jobs.collect::<String>(),
        rules.path().display()
    )
}
