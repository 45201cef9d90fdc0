//! The inventory service on one page: it owns the catalogue with its stock, reserves all lines of
//! an order or none, and releases the stock of a cancelled order.

#![cfg_attr(test, allow(clippy::expect_used, reason = "a failed expectation fails the test"))]

mod commands;
mod config;
pub mod domain;
mod http;
mod metrics;
mod replenishment;
mod steps;
mod store;

use std::sync::Arc;

use bootstrap::{Service, ServiceInfo, Startup, Task};
use contracts::{
    INVENTORY,
    catalogue::PROJECTIONS,
    order_fulfillment::{DETECT_TIMEOUT, RELEASE_STOCK, RESERVE_STOCK, SAGA, SagaTimedOut},
};
use faults::Faults;
use messaging::{Subscription, subscribe};
use participant::{Part, Participant, Source};
use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

pub use config::{Config, ReplenishmentArgs};
pub use replenishment::{SupplyError, replenish_what_runs_low};

pub const INFO: ServiceInfo = ServiceInfo {
    name: "inventory",
    title: "Inventory",
    description: "Owns the catalogue with its stock, and reserves all lines of an order or none.",
    version: env!("CARGO_PKG_VERSION"),
};

/// The tables of this service's schema, `inventory`.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/inventory");

/// The service's part in the saga.
static PART: Part = Part {
    service: INVENTORY,
    schema: "inventory",
    migrations: &MIGRATIONS,
    saga: &SAGA,
    timeout: &DETECT_TIMEOUT,
    projections: PROJECTIONS,
};

/// The state of steps and handlers. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub participant: Arc<Participant>,
    config: Arc<Config>,
    refusals: metrics::Refusals,
    /// The units of stock that were replenished.
    replenished: Counter,
}

/// Connects, and assembles the service.
pub async fn build(startup: Startup, config: Config) -> anyhow::Result<Service> {
    let faults = config.participant.faults(config.base.env())?;
    let app = App::connect(&startup, config, faults).await?;
    let subscriptions = subscriptions(&app);
    Ok(Service::new(app.participant.routes(router(&app), &subscriptions))
        .with_tasks(app.participant.tasks(&startup, &subscriptions, samples()))
        .with_tasks(tasks(&app, &startup.stop)))
}

impl App {
    pub async fn connect(startup: &Startup, config: Config, faults: Faults) -> anyhow::Result<Self> {
        let participant = Participant::join::<SagaTimedOut>(startup, PART, &config.participant, faults).await?;
        let refusals = startup.metrics.register(metrics::Refusals::register);
        let replenished = startup.metrics.register(metrics::register_replenished);
        Ok(App { participant, config: Arc::new(config), refusals, replenished })
    }
}

/// The steps of this service, each with its trigger.
pub fn subscriptions(app: &App) -> Vec<Subscription> {
    vec![subscribe(app, &RESERVE_STOCK, steps::reserve_stock), subscribe(app, &RELEASE_STOCK, steps::release_stock)]
}

/// The gauges that one replica reads: stock, and units that are still to be released.
pub fn samples() -> Vec<Source> {
    vec![Source { gauges: store::GAUGES, read: |pool| Box::pin(async move { store::read_gauges(&pool).await }) }]
}

pub fn router(app: &App) -> OpenApiRouter {
    http::routes(app.clone())
}

/// The background tasks, besides those of every participant.
pub fn tasks(app: &App, stop: &CancellationToken) -> Vec<Task> {
    if !app.config.replenishment.enabled {
        return Vec::new();
    }
    vec![("replenishment", Box::pin(replenishment::run(app.clone(), stop.clone())))]
}
