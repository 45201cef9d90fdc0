//! The parts that all participants of the saga have in common: relay, consumers, timeout
//! detector, housekeeping, and the routes to administrate them. The services differ only in their steps.

mod admin;
mod calls;
mod changes;
mod command;
mod config;
mod metrics;
mod replicas;
#[cfg(feature = "faults")]
mod requests;
mod sampler;
#[cfg(feature = "faults")]
mod shared_faults;
mod tasks;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::ensure;
use bootstrap::{Pools, ReadyFlag, Startup};
use faults::Faults;
use futures_util::future::BoxFuture;
use messaging::{
    Batch, Bus, Delivery, MessagingArgs, Metrics, Outbox, Report, StepError, StepResult, Subscription,
    dead_letter::{Batches, Replays},
};
use resilience::{Breakers, Policy};
use saga::{Event, SagaDefinition, Service, Step, StepOn, Timeout};
use saga_store::{StepTransaction, ThreePhases};
use sqlx::migrate::Migrator;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub use admin::{Bulk, Why, actor, expect_reason};
pub use calls::{CallError, Calls, Declines};
pub use command::command;
#[cfg(feature = "faults")]
pub use config::FaultArgs;
pub use config::{ParticipantArgs, ResilienceArgs, TimeoutArgs};
pub use sampler::{Source, sampled};
pub use webhook::SAMPLED as WEBHOOK_SAMPLED;

/// A service's part in a saga.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub service: Service,
    /// The schema of the service's own tables, and their migrations.
    pub schema: &'static str,
    pub migrations: &'static Migrator,
    pub saga: &'static SagaDefinition,
    /// The step by which any service times out a saga whose deadline has passed.
    pub timeout: &'static Step,
    /// The steps that maintain read-only views, of all services.
    pub projections: &'static [&'static Step],
}

impl Part {
    /// The steps that events trigger, of all services.
    fn consuming(&self) -> impl Iterator<Item = (&'static Step, &'static [Service])> + use<> {
        let steps = self.saga.steps.iter().chain(self.projections).copied();
        steps.filter(|step| step.service.is_some()).filter_map(|step| Some((step, step.consumes()?.publishers)))
    }
}

/// One replica of a service, as a participant of the saga. It is shared: each request would pay for a copy.
pub struct Participant {
    pub service: Service,
    part: Part,
    /// The saga, with the deadlines of this deployment.
    pub definition: &'static SagaDefinition,
    pub pools: Pools,
    /// Begins the transactions of steps.
    pub outbox: Outbox,
    /// Begins the transactions of HTTP handlers: the same, on connections with shorter time limits.
    pub http_outbox: Outbox,
    pub bus: Bus,
    pub settings: ParticipantArgs,
    /// One circuit breaker per step.
    pub breakers: Breakers,
    /// The name of this replica in leases.
    pub holder: String,
    batches: Batches,
    metrics: Metrics,
    faults: Faults,
    #[cfg(feature = "faults")]
    shared_faults: shared_faults::SharedFaults,
    replicas: replicas::Replicas,
    timeouts: Timeouts,
    /// The orchestrated saga whose coordinator runs in this service, if any.
    coordinated: Arc<OnceLock<&'static SagaDefinition>>,
    /// Where published events are posted besides, if it is switched on.
    webhook: Option<webhook::Endpoint>,
}

/// The timeout detector, whatever its event.
#[derive(Clone, Copy)]
struct Timeouts {
    /// Until it is stopped.
    run: fn(&Participant, CancellationToken) -> BoxFuture<'static, ()>,
    /// Once; returns how many sagas timed out.
    check: fn(&Participant) -> BoxFuture<'static, Result<i64, StepError>>,
}

impl Timeouts {
    fn of<T: Timeout>() -> Self {
        Timeouts {
            run: |participant, stop| Box::pin(participant.timeout_detector::<T>().run(stop)),
            check: |participant| {
                let detector = participant.timeout_detector::<T>();
                Box::pin(async move { detector.check(&CancellationToken::new()).await })
            },
        }
    }
}

impl Participant {
    /// Connects to the database and the broker, and checks that the schema is the expected one. `T` is the event of a saga's
    /// timeout.
    pub async fn join<T: Timeout>(
        startup: &Startup,
        part: Part,
        settings: &ParticipantArgs,
        faults: Faults,
    ) -> anyhow::Result<Arc<Self>> {
        let Part { service, schema, migrations, saga, .. } = part;
        expect_steps(&part, settings, &faults)?;
        let pools = Box::pin(startup.postgres(&settings.postgres, schema)).await?;
        for (table, expected) in [
            (format!("{schema}._migration"), migrations),
            (format!("{schema}._messaging_migration"), &messaging::MIGRATIONS),
            ("saga._migration".to_owned(), &saga_store::MIGRATIONS),
        ] {
            let limit = settings.postgres.database_startup_limit;
            bootstrap::postgres::expect_migrations(&pools.http, &table, expected, limit).await?;
        }
        let webhook = match settings.webhook.webhook_url {
            Some(_) => {
                let (table, limit) =
                    (format!("{schema}.{}", webhook::LEDGER), settings.postgres.database_startup_limit);
                bootstrap::postgres::expect_migrations(&pools.http, &table, &webhook::MIGRATIONS, limit).await?;
                webhook::Endpoint::new(&settings.webhook, startup.metrics.register(webhook::Metrics::register))?
            }
            None => None,
        };
        let client = startup.nats(&settings.nats).await?;
        let bus = Bus::new(client.clone(), service).with_faults(faults.clone());
        expect_consistent(&settings.messaging, bus.max_age().await)?;
        let holder = format!("{service}-{}", Uuid::now_v7());
        let metrics = startup.metrics.register(Metrics::register);
        startup.metrics.build_info(startup.service.version, if cfg!(feature = "faults") { "faults" } else { "" });
        let outbox = Outbox::new(pools.work.clone(), bus.clone(), metrics.clone());
        let resilience = &settings.resilience;
        let breakers = Breakers::new(resilience.breakers_enabled, resilience.overrides.clone());
        metrics::register(&startup.metrics, breakers.clone(), bus.clone(), faults.clone());
        Ok(Arc::new(Participant {
            service,
            part,
            definition: settings.definition(saga),
            http_outbox: outbox.on(pools.http.clone()),
            outbox,
            bus,
            breakers,
            settings: settings.clone(),
            replicas: replicas::Replicas::new(client, service, holder.clone(), pools.relay.clone()),
            holder,
            batches: Batches::new(startup.stop.clone()),
            metrics,
            #[cfg(feature = "faults")]
            shared_faults: shared_faults::SharedFaults::new(faults.clone(), pools.relay.clone(), service),
            faults,
            timeouts: Timeouts::of::<T>(),
            coordinated: Arc::default(),
            webhook,
            pools,
        }))
    }

    /// The transaction of a step that events trigger.
    pub async fn step<E: Event>(
        &self,
        step: &'static StepOn<E>,
        batch: Batch<E>,
    ) -> Result<StepTransaction<Delivery<E>>, StepError> {
        StepTransaction::take(&self.outbox, self.definition, step, batch).await
    }

    /// The transaction of a step that a deadline triggers.
    pub async fn step_by_deadline(&self, step: &'static Step) -> Result<StepTransaction<()>, sqlx::Error> {
        StepTransaction::begin(&self.outbox, self.definition, step).await
    }

    /// The transaction of a step that a request triggers.
    pub async fn step_by_request(&self, step: &'static Step) -> Result<StepTransaction<()>, sqlx::Error> {
        StepTransaction::begin(&self.http_outbox, self.definition, step).await
    }

    /// Takes a step that calls another system.
    pub async fn three_phases<S: ThreePhases>(&self, step: &S, batch: Batch<S::Event>) -> StepResult {
        saga_store::three_phases(&self.outbox, self.definition, step, batch).await
    }

    /// The metrics of messaging and sagas in this replica.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The retry and breaker policy of a step in this deployment.
    pub fn policy(&self, step: &Step) -> Policy {
        self.settings.resilience.policy(step)
    }

    /// Calls to another system through `client`. `declines` builds the refusal of a call, for injected faults.
    pub fn calls(&self, client: reqwest::Client, declines: Declines) -> Calls {
        Calls::new(client, self.faults.clone(), declines)
    }

    /// The coordinator of this saga runs in this service: faults can be limited to its steps, and the steps that it commands of
    /// other services have breakers here. Call it once.
    pub fn coordinates(&self, saga: &'static SagaDefinition) {
        let _ = self.coordinated.set(saga);
    }

    /// The steps of the saga whose coordinator runs in this service.
    fn coordinated(&self) -> impl Iterator<Item = &'static Step> {
        self.coordinated.get().copied().into_iter().flat_map(|saga| saga.steps).copied()
    }

    /// A coordinator's calls to participants through `client`.
    pub fn commands(&self, client: reqwest::Client) -> Calls {
        Calls::commands(client, self.faults.clone())
    }

    /// All routes of the service: its own, and the administration of dead letters, outbox, relay, consumers,
    /// breakers, and (where enabled) faults. What operators do there is recorded.
    pub fn routes(self: &Arc<Self>, business: OpenApiRouter, subscriptions: &[Subscription]) -> OpenApiRouter {
        #[cfg(feature = "faults")]
        let business = match self.faults.is_armable() {
            true => business.layer(axum::middleware::from_fn_with_state(self.faults.clone(), requests::hit_request)),
            false => business,
        };
        let all = business.merge(admin::routes(Arc::clone(self), subscriptions.to_vec()));
        all.route_layer(axum::middleware::from_fn_with_state(Arc::clone(self), admin::record))
    }

    /// The parts that replays of dead letters need.
    pub fn replays(&self, subscriptions: &[Subscription]) -> Replays {
        Replays {
            pool: self.pools.work.clone(),
            subscriptions: subscriptions.into(),
            batches: self.batches.clone(),
            metrics: self.metrics.clone(),
            faults: self.faults.clone(),
        }
    }

    /// Whether concurrent requests may share a transaction (group commit). Not while a fault is armed, so that a fault affects
    /// only the request that it hits.
    pub fn may_group_commit(&self) -> bool {
        !self.faults.is_armed()
    }

    /// The baggage of a saga's events: its order, customer and products, for faults that are limited to one of them.
    /// None where faults are not enabled.
    pub fn baggage<'a>(
        &self,
        order_id: Uuid,
        customer_id: &str,
        skus: impl Iterator<Item = &'a str>,
    ) -> Option<Arc<str>> {
        #[cfg(feature = "faults")]
        if self.faults.is_armable() {
            return Some(faults::Subject::baggage(order_id, customer_id, skus).into());
        }
        let _ = (order_id, customer_id, skus);
        None
    }
}

/// Refuses overrides and faults for unknown steps: a misspelt name would silently have no effect.
fn expect_steps(part: &Part, settings: &ParticipantArgs, faults: &Faults) -> anyhow::Result<()> {
    let known: Vec<&str> = part.consuming().map(|(step, _)| step.name).collect();
    for step in settings.resilience.overrides.steps() {
        ensure!(known.contains(&step), "RESILIENCE names the step {step:?}, and there is none; there are {known:?}");
    }
    #[cfg(feature = "faults")]
    for step in faults.armed().iter().filter_map(|armed| armed.spec.scope.step.as_deref()) {
        ensure!(known.contains(&step), "FAULT_PLAN names the step {step:?}, and there is none; there are {known:?}");
    }
    #[cfg(not(feature = "faults"))]
    let _ = faults;
    Ok(())
}

/// Refuses settings with which a relay would lose its lease between polls, or an event could have its effect twice.
fn expect_consistent(settings: &MessagingArgs, max_age: Option<Duration>) -> anyhow::Result<()> {
    let MessagingArgs { relay_poll, relay_lease, inbox_retention, dead_letter_retention, .. } = *settings;
    ensure!(
        relay_poll < relay_lease,
        "RELAY_POLL ({relay_poll:?}) has to be shorter than RELAY_LEASE ({relay_lease:?})"
    );
    let Some(max_age) = max_age else { return Ok(()) };
    ensure!(
        !max_age.is_zero() && inbox_retention >= max_age + dead_letter_retention,
        "INBOX_RETENTION ({inbox_retention:?}) has to be at least STREAM_MAX_AGE ({max_age:?}; 0: without limit) and \
         DEAD_LETTER_RETENTION ({dead_letter_retention:?}) together"
    );
    Ok(())
}

/// Reports the state of a long-running task to the readiness check.
fn report_to(flag: ReadyFlag) -> Report {
    Arc::new(move |state| match state {
        Ok(()) => flag.ok(),
        Err(reason) => flag.failing(reason),
    })
}
