//! The order service on one page: it accepts orders at its own prices, and decides how they
//! end. It consumes the refusals and timeouts, and publishes `OrderCancelled`.

mod catalogue;
mod compensation;
mod config;
pub mod domain;
mod http;
mod intake;
mod metrics;
mod orchestration;
mod placement;
mod retention;
mod steps;
mod store;
mod summary;

use std::sync::Arc;

use bootstrap::{Service, ServiceInfo, Startup, Task, WriteBatcher};
use contracts::{
    ORDER,
    catalogue::{PROJECT_PRODUCT_CREATED, PROJECT_PRODUCT_DETAILS_CHANGED, PROJECT_PRODUCT_PRICE_CHANGED, PROJECTIONS},
    order_fulfillment::{
        CANCEL_TIMED_OUT_ORDER, CANCEL_UNFILLABLE_ORDER, CANCEL_UNPAID_ORDER, CONFIRM_ORDER, DETECT_TIMEOUT, SAGA,
        SagaTimedOut,
    },
};
use faults::Faults;
use messaging::{Subscription, subscribe};
use orchestrator::Coordinator;
use participant::{Part, Participant, Source};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    intake::Intake,
    placement::{Outcome, Placement, Style},
};

pub use compensation::drive_compensation;
pub use config::Config;

pub const INFO: ServiceInfo = ServiceInfo {
    name: "order",
    title: "Order",
    description: "Accepts orders, and confirms them or cancels them with all steps undone.",
    version: env!("CARGO_PKG_VERSION"),
};

/// The tables of this service's schema, `orders`.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/order");

/// The service's part in the saga.
static PART: Part = Part {
    service: ORDER,
    schema: "orders",
    migrations: &MIGRATIONS,
    saga: &SAGA,
    timeout: &DETECT_TIMEOUT,
    projections: PROJECTIONS,
};

/// How many transactions that place orders run concurrently: few, so that the orders which arrive meanwhile share the next one.
const PLACEMENT_LANES: usize = 2;
/// How many orders one transaction places at most.
const MOST_PLACEMENTS: usize = 64;

/// How many customers wait for the end of an orchestrated order at most; others are answered at once.
const MOST_WAITS: usize = 256;

/// The state of steps and handlers. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub participant: Arc<Participant>,
    config: Arc<Config>,
    inventory: reqwest::Client,
    ends: metrics::Ends,
    intake: Intake,
    purged: metrics::Purged,
    placements: Arc<WriteBatcher<Placement, Outcome>>,
    /// Drives the sagas of orchestrated orders.
    twin: Arc<Coordinator<orchestration::Business>>,
    orchestrated_placements: Arc<WriteBatcher<Placement, Outcome>>,
    /// How many more customers may wait for the end of an orchestrated order: they must not use up the requests in progress.
    waits: Arc<Semaphore>,
    /// Cancelled when the service drains: then long waits for an order's end stop.
    draining: CancellationToken,
}

/// Connects, and assembles the service.
pub async fn build(startup: Startup, config: Config) -> anyhow::Result<Service> {
    let faults = config.participant.faults(config.base.env())?;
    let app = App::connect(&startup, config, faults).await?;
    let subscriptions = subscriptions(&app);
    Ok(Service::new(app.participant.routes(router(&app), &subscriptions))
        .with_tasks(app.participant.tasks(&startup, &subscriptions, samples()))
        .with_tasks(tasks(&app, &startup)))
}

impl App {
    pub async fn connect(startup: &Startup, config: Config, faults: Faults) -> anyhow::Result<Self> {
        let participant = Participant::join::<SagaTimedOut>(startup, PART, &config.participant, faults).await?;
        let inventory = reqwest::Client::builder().timeout(std::time::Duration::from_secs(10)).build()?;
        let steps = participant.metrics().clone();
        let ends = metrics::register(&startup.metrics, steps);
        let intake = startup.metrics.register(Intake::register);
        let purged = startup.metrics.register(metrics::Purged::register);
        let batcher = || WriteBatcher::new(PLACEMENT_LANES, MOST_PLACEMENTS);
        let twin = orchestration::coordinator(&participant, startup, &config, ends.clone())?;
        Ok(App {
            participant,
            config: Arc::new(config),
            inventory,
            ends,
            intake,
            purged,
            placements: batcher(),
            twin,
            orchestrated_placements: batcher(),
            waits: Arc::new(Semaphore::new(MOST_WAITS)),
            draining: startup.draining.clone(),
        })
    }
}

impl App {
    fn placements(&self, style: Style) -> &Arc<WriteBatcher<Placement, Outcome>> {
        match style {
            Style::Choreographed => &self.placements,
            Style::Orchestrated => &self.orchestrated_placements,
        }
    }
}

/// The steps of this service, each with its trigger.
pub fn subscriptions(app: &App) -> Vec<Subscription> {
    vec![
        subscribe(app, &CONFIRM_ORDER, steps::confirm_order),
        subscribe(app, &CANCEL_UNFILLABLE_ORDER, steps::cancel_unfillable_order),
        subscribe(app, &CANCEL_UNPAID_ORDER, steps::cancel_unpaid_order),
        subscribe(app, &CANCEL_TIMED_OUT_ORDER, steps::cancel_timed_out_order),
        subscribe(app, &PROJECT_PRODUCT_CREATED, catalogue::project_product_created),
        subscribe(app, &PROJECT_PRODUCT_PRICE_CHANGED, catalogue::project_product_price_changed),
        subscribe(app, &PROJECT_PRODUCT_DETAILS_CHANGED, catalogue::project_product_details_changed),
    ]
}

/// The gauges that one replica reads: of the sagas, of the database server, and the age of the summary of orders.
pub fn samples() -> Vec<Source> {
    vec![
        Source {
            gauges: saga_store::sample::SAMPLED,
            read: |pool| Box::pin(async move { orchestration::read_gauges(&pool).await }),
        },
        Source {
            gauges: store::DATABASE_GAUGES,
            read: |pool| Box::pin(async move { store::read_database(&pool).await }),
        },
        Source {
            gauges: store::SUMMARY_GAUGES,
            read: |pool| Box::pin(async move { store::read_summary_age(&pool).await }),
        },
    ]
}

pub fn router(app: &App) -> OpenApiRouter {
    http::routes(app.clone())
}

/// The background tasks, besides those of every participant.
pub fn tasks(app: &App, startup: &Startup) -> Vec<Task> {
    let Startup { stop, readiness, .. } = startup;
    vec![
        ("rebuild_catalogue", Box::pin(catalogue::run(app.clone(), stop.clone()))),
        ("refresh_summary", Box::pin(summary::run(app.clone(), stop.clone()))),
        ("drive_compensation", Box::pin(compensation::run(app.clone(), stop.clone()))),
        ("intake", Box::pin(intake::watch(app.clone(), readiness.clone(), stop.clone()))),
        ("coordinator", Box::pin(app.twin.clone().run(stop.clone()))),
        ("retention", Box::pin(retention::run(app.clone(), stop.clone()))),
    ]
}
