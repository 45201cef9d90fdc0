//! One replica of one service, as tasks of this process.

use std::{sync::Arc, time::Duration};

use bootstrap::{
    Shell, Startup,
    http::{assemble, serve},
};
use clap::Parser;
use contracts::{INVENTORY, ORDER, PAYMENT};
use faults::Faults;
use messaging::{Consumer, Subscription, topology::StreamSettings};
use saga::Service;
use tokio::net::TcpListener;
use utoipa::openapi::OpenApi;

use crate::{Client, TestSuite, eventually};

/// Settings that tests change.
#[derive(Debug, Clone)]
pub struct Tuning {
    pub saga_deadline: Duration,
    pub compensation_deadline: Duration,
    pub timeout_check_every: Duration,
    pub timeout_detector_enabled: bool,
    pub auto_compensate: bool,
    pub relay_lease: Duration,
    pub relay_poll: Duration,
    pub relay_batch: u16,
    pub outbox_parked_replay_after: Option<Duration>,
    /// Long, so that a test cannot rely on it: losses must be detected when they happen.
    pub reconcile_every: Duration,
    pub catalogue_rebuild_every: Duration,
    pub coordinator_lease: Duration,
    pub gateway_timeout: Duration,
    pub customers_required: bool,
    pub customer_summary_every: Duration,
    /// Overrides of steps' policies, as in RESILIENCE.
    pub resilience: &'static str,
    pub breakers_enabled: bool,
    pub retries_enabled: bool,
    pub dead_letter_auto_replay: bool,
    pub metrics_every: Duration,
    /// The age of an unpublished event from which new orders are refused.
    pub placement_outbox_age: Duration,
    /// The size of each stream.
    pub stream_max_bytes: i64,
    pub statement_timeout: Duration,
    pub lock_timeout: Duration,
    /// The settings of a webhook.
    pub webhook: Vec<(&'static str, String)>,
    /// Only the HTTP server runs; the test takes every step itself.
    pub by_hand: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            saga_deadline: Duration::from_secs(60),
            compensation_deadline: Duration::from_secs(60),
            timeout_check_every: Duration::from_millis(100),
            timeout_detector_enabled: true,
            auto_compensate: true,
            relay_lease: Duration::from_secs(2),
            relay_poll: Duration::from_millis(500),
            relay_batch: 1000,
            outbox_parked_replay_after: None,
            reconcile_every: Duration::from_secs(600),
            catalogue_rebuild_every: Duration::from_secs(600),
            coordinator_lease: Duration::from_secs(2),
            gateway_timeout: Duration::from_secs(5),
            customers_required: false,
            customer_summary_every: Duration::from_secs(600),
            resilience: "",
            breakers_enabled: true,
            retries_enabled: true,
            dead_letter_auto_replay: false,
            metrics_every: Duration::from_secs(5),
            placement_outbox_age: Duration::from_secs(30),
            stream_max_bytes: StreamSettings::default().max_bytes,
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            webhook: Vec::new(),
            by_hand: false,
        }
    }
}

/// A running replica; dropping it ends it as abruptly as is possible within one process.
pub struct Replica {
    pub service: Service,
    pub url: String,
    pub client: Client,
    pub openapi: OpenApi,
    pub startup: Startup,
    pub app: App,
    pub subscriptions: Vec<Subscription>,
    pub faults: Faults,
    _end: End,
}

/// The application of the service.
pub enum App {
    Order(order::App),
    Inventory(inventory::App),
    Payment(payment::App),
}

impl App {
    pub fn participant(&self) -> &Arc<participant::Participant> {
        match self {
            App::Order(app) => &app.participant,
            App::Inventory(app) => &app.participant,
            App::Payment(app) => &app.participant,
        }
    }
}

/// Cancels the replica's tasks when it goes out of scope.
struct End(bootstrap::CancellationToken);

impl Drop for End {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Replica {
    pub(crate) async fn start(
        suite: &TestSuite,
        service: Service,
        faults: Faults,
        servers: [&str; 2],
    ) -> anyhow::Result<Replica> {
        let arguments = arguments(suite, service, servers);
        // The services' types for configuration, startup and application differ, and have the same names.
        macro_rules! start {
            ($service:ident, $app:path, $tasks:expr) => {{
                let config = $service::Config::parse_from(arguments);
                let startup = Startup::new($service::INFO);
                let http = config.base.http.clone();
                let app = $service::App::connect(&startup, config, faults.clone()).await?;
                let subscriptions = $service::subscriptions(&app);
                let (api, tasks) = ($service::router(&app), $tasks(&app, &startup));
                ($service::INFO, $app(app), subscriptions, api, tasks, $service::samples(), startup, http)
            }};
        }
        let (info, app, subscriptions, api, tasks, samples, startup, http) = match service {
            ORDER => start!(order, App::Order, order::tasks),
            INVENTORY => {
                start!(inventory, App::Inventory, |app, startup: &Startup| inventory::tasks(app, &startup.stop))
            }
            PAYMENT => start!(payment, App::Payment, |_, _| Vec::new()),
            other => anyhow::bail!("{other} is no service of the suite"),
        };
        let participant = app.participant();
        if !suite.tuning.by_hand {
            let own = participant.tasks(&startup, &subscriptions, samples);
            for (name, task) in own.into_iter().chain(tasks) {
                startup.tasks.spawn(name, task);
            }
        }
        let shell = Shell::new(info, &http, startup.readiness.clone(), startup.metrics.clone());
        let (router, openapi) = assemble(&shell, participant.routes(api, &subscriptions));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let serving = serve(listener, move || router.clone(), http, startup.stop.clone());
        startup.tasks.spawn("http", serving);
        let client = Client::new(&url);
        let end = End(startup.stop.clone());
        let replica = Replica { service, client, url, openapi, startup, app, subscriptions, faults, _end: end };
        eventually(async || replica.startup.readiness.is_ready()).await?;
        Ok(replica)
    }

    /// Arms a fault in this replica, over REST.
    pub async fn arm(&self, fault: &serde_json::Value) -> anyhow::Result<u64> {
        let armed = self.client.post("/api/admin/faults", fault).await?.expect(201)?;
        armed["id"].as_u64().ok_or_else(|| anyhow::anyhow!("an armed fault without an id: {armed}"))
    }

    /// The breaker of a step, as an operator sees it.
    pub async fn breaker(&self, step: &str) -> anyhow::Result<serde_json::Value> {
        let breakers = self.client.get("/api/admin/breakers").await?.expect(200)?;
        let found = breakers["items"].as_array().into_iter().flatten().find(|b| b["step"] == step).cloned();
        found.ok_or_else(|| anyhow::anyhow!("there is no breaker of {step}: {breakers}"))
    }

    /// Waits until the breaker of a step fits, and returns it.
    pub async fn breaker_until(
        &self,
        step: &str,
        fits: impl Fn(&serde_json::Value) -> bool,
    ) -> anyhow::Result<serde_json::Value> {
        eventually(async || {
            let breaker = self.breaker(step).await?;
            anyhow::ensure!(fits(&breaker), "the breaker is {breaker:#}");
            anyhow::Ok(Some(breaker))
        })
        .await
    }

    /// The number of duplicate deliveries that this replica has recognised.
    pub fn duplicates(&self) -> anyhow::Result<u64> {
        let text = self.startup.metrics.encode()?;
        let counts = text.lines().filter(|line| line.starts_with("inbox_duplicates_total{"));
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// One more consumer of the replica, not yet running.
    pub fn consumer(&self, subscription: Subscription, publisher: Service) -> Consumer {
        let participant = self.app.participant();
        Consumer {
            policy: participant.policy(subscription.step),
            breaker: participant.breakers.of(subscription.step),
            bus: participant.bus.clone().with_faults(Faults::none()),
            settings: participant.settings.messaging.clone(),
            ..Consumer::new(&participant.outbox, subscription, publisher)
        }
    }

    /// Stops as in a deployment: intake first, then work in hand, then connections.
    pub async fn stop(self) {
        self.startup.draining.cancel();
        self.startup.stop.cancel();
        self.startup.finish(Duration::from_secs(10)).await;
    }
}

fn arguments(suite: &TestSuite, service: Service, [inventory_url, payment_url]: [&str; 2]) -> Vec<String> {
    let tuning = &suite.tuning;
    let role = format!("{service}_service");
    let mut arguments: Vec<(&str, String)> = vec![
        ("--database-url", suite.database.url_for(&format!("{role}:{role}"))),
        ("--nats-url", suite.nats_url.clone()),
        ("--saga-deadline", humantime(tuning.saga_deadline)),
        ("--compensation-deadline", humantime(tuning.compensation_deadline)),
        ("--timeout-check-every", humantime(tuning.timeout_check_every)),
        ("--timeout-detector-enabled", tuning.timeout_detector_enabled.to_string()),
        ("--auto-compensate", tuning.auto_compensate.to_string()),
        ("--relay-lease", humantime(tuning.relay_lease)),
        ("--relay-poll", humantime(tuning.relay_poll)),
        ("--relay-batch", tuning.relay_batch.to_string()),
        ("--reconcile-every", humantime(tuning.reconcile_every)),
        ("--statement-timeout", humantime(tuning.statement_timeout)),
        ("--lock-timeout", humantime(tuning.lock_timeout)),
        ("--metrics-every", humantime(tuning.metrics_every)),
        // Once, at its start: tests run rounds themselves.
        ("--housekeeping-every", humantime(Duration::from_secs(3600))),
        ("--resilience", tuning.resilience.to_owned()),
        ("--breakers-enabled", tuning.breakers_enabled.to_string()),
        ("--retries-enabled", tuning.retries_enabled.to_string()),
        ("--dead-letter-auto-replay", tuning.dead_letter_auto_replay.to_string()),
    ];
    if let Some(after) = tuning.outbox_parked_replay_after {
        arguments.push(("--outbox-parked-replay-after", humantime(after)));
    }
    arguments.extend(tuning.webhook.iter().cloned());
    match service {
        ORDER => arguments.extend([
            ("--inventory-url", inventory_url.to_owned()),
            ("--payment-url", payment_url.to_owned()),
            ("--coordinator-lease", humantime(tuning.coordinator_lease)),
            ("--catalogue-rebuild-every", humantime(tuning.catalogue_rebuild_every)),
            ("--customers-required", tuning.customers_required.to_string()),
            ("--customer-summary-every", humantime(tuning.customer_summary_every)),
            ("--compensation-check-every", humantime(tuning.timeout_check_every)),
            ("--placement-outbox-age", humantime(tuning.placement_outbox_age)),
        ]),
        PAYMENT => arguments.extend([
            ("--gateway-url", suite.gateway.base_url.clone()),
            ("--gateway-timeout", humantime(tuning.gateway_timeout)),
        ]),
        _ => {}
    }
    let pairs = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    [service.0.to_owned()].into_iter().chain(pairs).chain(["--allow-unsafe-durability".to_owned()]).collect()
}

fn humantime(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
