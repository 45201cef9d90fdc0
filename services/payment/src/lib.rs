//! The payment service on one page: it charges an order's card once, through an external gateway, and
//! refunds cancelled orders. [`domain`] lists the interleavings of the two.

#![cfg_attr(test, allow(clippy::expect_used, reason = "a failed expectation fails the test"))]

mod commands;
mod config;
pub mod domain;
mod forgotten;
pub mod gateway;
mod http;
mod metrics;
pub mod steps;
mod store;

use std::sync::Arc;

use bootstrap::{Service, ServiceInfo, Startup};
use contracts::{
    PAYMENT,
    catalogue::PROJECTIONS,
    order_fulfillment::{DETECT_TIMEOUT, PROCESS_PAYMENT, REFUND_PAYMENT, SAGA, SagaTimedOut},
};
use faults::Faults;
use messaging::{Subscription, subscribe};
use participant::{Part, Participant, Source};
use utoipa_axum::router::OpenApiRouter;

pub use config::{Config, GatewayArgs};
use gateway::{GatewayMetrics, HttpGateway, MeasuredGateway, PaymentGateway};

pub const INFO: ServiceInfo = ServiceInfo {
    name: "payment",
    title: "Payment",
    description: "Charges each order's card once, and refunds cancelled orders.",
    version: env!("CARGO_PKG_VERSION"),
};

/// The tables of this service's schema, `payment`.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/payment");

/// The service's part in the saga.
static PART: Part = Part {
    service: PAYMENT,
    schema: "payment",
    migrations: &MIGRATIONS,
    saga: &SAGA,
    timeout: &DETECT_TIMEOUT,
    projections: PROJECTIONS,
};

/// The state of steps and handlers. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub participant: Arc<Participant>,
    config: Arc<GatewayArgs>,
    gateway: MeasuredGateway,
    declines: metrics::Declines,
}

/// Connects, and assembles the service.
pub async fn build(startup: Startup, config: Config) -> anyhow::Result<Service> {
    let faults = config.participant.faults(config.base.env())?;
    let app = App::connect(&startup, config, faults).await?;
    let subscriptions = subscriptions(&app);
    let tasks = app.participant.tasks(&startup, &subscriptions, samples());
    Ok(Service::new(app.participant.routes(router(&app), &subscriptions)).with_tasks(tasks))
}

impl App {
    pub async fn connect(startup: &Startup, config: Config, faults: Faults) -> anyhow::Result<Self> {
        let settings = config.gateway.clone();
        let gateway = |participant: &Participant| {
            let gateway = HttpGateway::new(&settings, |client, declines| participant.calls(client, declines))?;
            Ok(Arc::new(gateway) as _)
        };
        Self::connect_with(startup, config, faults, gateway).await
    }

    /// Like [`App::connect`], with another gateway.
    pub async fn connect_with(
        startup: &Startup,
        config: Config,
        faults: Faults,
        gateway: impl FnOnce(&Participant) -> anyhow::Result<Arc<dyn PaymentGateway>>,
    ) -> anyhow::Result<Self> {
        let participant = Participant::join::<SagaTimedOut>(startup, PART, &config.participant, faults).await?;
        let metrics = startup.metrics.register(GatewayMetrics::register);
        let gateway = MeasuredGateway { inner: gateway(&participant)?, metrics };
        let declines = startup.metrics.register(metrics::Declines::register);
        Ok(App { participant, config: Arc::new(config.gateway), gateway, declines })
    }
}

/// The steps of this service, each with its trigger. Both wait for the gateway, so several batches of
/// each run concurrently.
pub fn subscriptions(app: &App) -> Vec<Subscription> {
    let lanes = app.config.payment_lanes;
    vec![
        subscribe(app, &PROCESS_PAYMENT, steps::process_payment).lanes(lanes),
        subscribe(app, &REFUND_PAYMENT, steps::refund_payment).lanes(lanes),
    ]
}

/// The gauges that one replica reads: the money that is still to be refunded.
pub fn samples() -> Vec<Source> {
    vec![Source { gauges: store::GAUGES, read: |pool| Box::pin(async move { store::read_gauges(&pool).await }) }]
}

pub fn router(app: &App) -> OpenApiRouter {
    http::routes(app.clone())
}
