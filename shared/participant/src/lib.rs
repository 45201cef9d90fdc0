//! What every participant of the saga runs besides its own steps: relay, consumers, timeout
//! detector, housekeeping, and the routes to administrate them. The services differ only in their
//! steps, and this crate is why.

mod admin;
mod config;
mod tasks;

use std::sync::Arc;

use bootstrap::{Pools, ReadyFlag, Startup};
use contracts::order_fulfillment;
use faults::Faults;
use messaging::{Bus, Metrics, Outbox, Report, Subscription, Wake};
use saga::{SagaDefinition, Service};
use sqlx::migrate::Migrator;
use uuid::Uuid;

pub use config::ParticipantArgs;

/// One replica of one service as a participant. Cheap to clone.
#[derive(Clone)]
pub struct Participant {
    pub service: Service,
    /// The saga, with the deadlines of this deployment.
    pub definition: &'static SagaDefinition,
    pub pools: Pools,
    /// Where steps begin their transactions.
    pub outbox: Outbox,
    /// Where HTTP handlers begin theirs: the same outbox over connections that give up sooner.
    pub http_outbox: Outbox,
    pub bus: Bus,
    pub settings: ParticipantArgs,
    /// Names this replica in leases.
    pub holder: String,
    metrics: Metrics,
    faults: Faults,
    wake: Arc<Wake>,
}

impl Participant {
    /// Connects to the database and the broker, and checks that the schema is the expected one.
    pub async fn join(
        startup: &Startup,
        service: Service,
        schema: &str,
        migrations: &Migrator,
        settings: &ParticipantArgs,
        faults: Faults,
    ) -> anyhow::Result<Self> {
        let pools = startup.postgres(&settings.postgres, schema).await?;
        for (table, expected) in [
            (format!("{schema}._migration"), migrations),
            (format!("{schema}._messaging_migration"), &messaging::MIGRATIONS),
            ("saga._migration".to_owned(), &saga_store::MIGRATIONS),
        ] {
            bootstrap::postgres::expect_migrations(&pools.http, &table, expected).await?;
        }
        let client = startup.nats(&settings.nats).await?;
        let wake = Arc::new(Wake::default());
        let outbox = Outbox::new(pools.work.clone(), service, Arc::clone(&wake), faults.clone());
        Ok(Participant {
            service,
            definition: settings.definition(&order_fulfillment::SAGA),
            http_outbox: outbox.on(pools.http.clone()),
            outbox,
            bus: Bus::new(client, service),
            settings: settings.clone(),
            holder: format!("{service}-{}", Uuid::now_v7()),
            metrics: startup.metrics.register(Metrics::register),
            faults,
            wake,
            pools,
        })
    }

    /// The routes to administrate this service: dead letters, outbox, relay, consumers.
    pub fn admin_routes(&self, subscriptions: &[Subscription]) -> utoipa_axum::router::OpenApiRouter {
        admin::routes(self.clone(), subscriptions.to_vec())
    }
}

/// Shows in the readiness check whether a long-running part works.
fn report_to(flag: ReadyFlag) -> Report {
    Arc::new(move |state| match state {
        Ok(()) => flag.ok(),
        Err(reason) => flag.failing(reason),
    })
}
