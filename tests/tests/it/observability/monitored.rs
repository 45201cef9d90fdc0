//! The real programs, with a Prometheus that scrapes them every second, an Alertmanager, and the console that audits them and
//! receives the alerts. The rules are the repository's own.

use std::{cell::RefCell, collections::BTreeSet, fs, time::SystemTime};

use suite_tests::{Collector, PrometheusApi, Receiver, WEBHOOK_SECRET};
use testkit::{Monitor, Process};

use super::{boards::rule_files, cluster::is_of_a_cluster};
use crate::{prelude::*, sources::read};

/// Names further targets of Prometheus.
const OTHERS: &str = "others.json";

/// Intervals of minutes in a rule are seconds here.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("METRICS_EVERY", "1s"),
    ("SAGA_DEADLINE", "4s"),
    // An answer after the deadline: a timeout without a failure.
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
    // The processes end before the suite that they use.
    pub(super) inventory_process: RefCell<Process>,
    _processes: [Process; 3],
    pub(super) order: Client,
    pub(super) inventory: Client,
    pub(super) payment: Client,
    pub(super) console: Client,
    pub(super) api: PrometheusApi,
    pub(super) alertmanager: Client,
    /// The endpoint of inventory's webhook.
    pub(super) receiver: Receiver,
    /// When Prometheus began, in seconds since 1970.
    pub(super) began: f64,
    pub(super) suite: TestSuite,
    /// The alerts that have arrived.
    pub(super) fired: RefCell<BTreeSet<String>>,
    _prometheus: Monitor,
    _alertmanager: Monitor,
    /// The rules, and further scrape targets.
    folder: tempfile::TempDir,
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Monitored {
    pub(super) async fn start() -> anyhow::Result<Monitored> {
        let suite = TestSuite::new().await?;
        // Only a traced request can be an exemplar.
        let collector = Collector::start().await?;
        let mut settings = SETTINGS.to_vec();
        settings.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url));
        let receiver = Receiver::start().await?;
        let webhook = [("WEBHOOK_URL", &*receiver.url), ("WEBHOOK_SECRET", WEBHOOK_SECRET)];
        let inventory = Running::start(&suite, INVENTORY, &[&settings[..], &webhook].concat()).await?;
        let payment = Running::start(&suite, PAYMENT, &settings).await?;
        let commanded = [("INVENTORY_URL", inventory.client.base()), ("PAYMENT_URL", payment.client.base())];
        let order = Running::start(&suite, ORDER, &[&settings[..], &commanded].concat()).await?;
        let (console, console_process) = Running::auditor(&suite, "1s")?;
        let alertmanager = Monitor::alertmanager(&alertmanager_config(console.base())?).await?;
        let rules = impatient_rules()?;
        let targets = [
            ("order", order.client.base()),
            ("inventory", inventory.client.base()),
            ("payment", payment.client.base()),
            ("gateway_simulator", &suite.gateway.base_url),
            ("console", console.base()),
        ];
        let began = now();
        let prometheus = Monitor::prometheus(&prometheus_config(&targets, &alertmanager.url(), &rules)).await?;
        let api = PrometheusApi::new(&prometheus.url());
        let monitored = Monitored {
            inventory_process: RefCell::new(inventory.process),
            _processes: [order.process, payment.process, console_process],
            order: order.client,
            inventory: inventory.client,
            payment: payment.client,
            console,
            api,
            alertmanager: Client::new(&alertmanager.url()),
            receiver,
            began,
            suite,
            fired: RefCell::default(),
            _prometheus: prometheus,
            _alertmanager: alertmanager,
            folder: rules,
        };
        monitored.all_are_scraped().await?;
        Ok(monitored)
    }

    async fn all_are_scraped(&self) -> Test {
        eventually(async || {
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

    /// Creates a product and waits until it is in order's catalogue.
    pub(super) async fn sell(&self, sku: &str, quantity: i64) -> Test {
        self.inventory.create_product(sku, 1_999, quantity).await?.expect(201)?;
        let path = format!("/api/products/{sku}");
        eventually(async || self.order.get(&path).await.is_ok_and(|answer| answer.status == 200)).await
    }

    /// The names of the alerts that Alertmanager has now.
    pub(super) async fn alerts(&self) -> anyhow::Result<BTreeSet<String>> {
        let alerts = self.alertmanager.get("/api/v2/alerts").await?.expect(200)?;
        Ok(names(&alerts, |alert| &alert["labels"]["alertname"]))
    }

    /// The names of the alerts that have arrived at the console, including those that have ended.
    pub(super) async fn received(&self) -> anyhow::Result<BTreeSet<String>> {
        let alerts = self.console.get("/alerts").await?.expect(200)?;
        Ok(names(&alerts["items"], |alert| &alert["name"]))
    }
}

fn names(alerts: &Value, name: impl Fn(&Value) -> &Value) -> BTreeSet<String> {
    alerts.as_array().into_iter().flatten().filter_map(|alert| name(alert).as_str().map(str::to_owned)).collect()
}

/// The repository's rules with shorter durations, both before an alert fires and in conditions over five minutes.
fn impatient_rules() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for (number, file) in rule_files()?.iter().filter(|file| !is_of_a_cluster(file)).enumerate() {
        let rules = read(file)?;
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
        fs::write(folder.path().join(format!("{number}.yml")), lines.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(folder)
}

/// The repository's routes and groups, without waiting for groups to fill, and with this test's console as receiver.
fn alertmanager_config(console_url: &str) -> anyhow::Result<String> {
    let config = read("docker/alertmanager.yml")?;
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
