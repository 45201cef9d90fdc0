//! The shared parts that a service is composed with, and their shutdown.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_nats::{Client, connection::State};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Tasks;
use crate::{
    config::{NatsArgs, PostgresArgs},
    error::StartError,
    http::ServiceInfo,
    metrics::Metrics,
    nats,
    postgres::{self, Pools},
    readiness::{Readiness, ReadyFlag},
};

/// How often the connections are checked for readiness.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The shared parts of a service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Startup {
    /// The identity of the service.
    pub service: ServiceInfo,
    /// Where dependencies register.
    pub readiness: Readiness,
    /// Where metrics are registered.
    pub metrics: Metrics,
    /// Background work under supervision.
    pub tasks: Tasks,
    /// Cancelled at a stop signal, while requests in progress are still answered: long waits
    /// (`Prefer: wait`) should end now.
    pub draining: CancellationToken,
    /// Cancelled when no request is in progress any more: background work should end now.
    pub stop: CancellationToken,
    pools: Arc<OnceLock<Pools>>,
    client: Arc<OnceLock<Client>>,
}

impl Startup {
    /// For [`super::run`], and for tests that compose a service themselves.
    pub fn new(service: ServiceInfo) -> Self {
        let stop = CancellationToken::new();
        Self {
            service,
            readiness: Readiness::default(),
            metrics: Metrics::default(),
            tasks: Tasks::new(stop.clone()),
            draining: CancellationToken::new(),
            stop,
            pools: Arc::default(),
            client: Arc::default(),
        }
    }

    /// Connects to PostgreSQL as [`postgres::connect`] does, refuses an unsafe server, from then on updates the readiness
    /// entry `postgres`, and closes the pools at shutdown. Call it once.
    ///
    /// # Errors
    /// Those of [`postgres::connect`] and [`postgres::check_durability`].
    pub async fn postgres(&self, args: &PostgresArgs, schema: &str) -> Result<Pools, StartError> {
        let flag = self.readiness.register("postgres");
        let pools = postgres::connect(args, schema, self.service.name, &flag, &self.stop).await?;
        let first = self.pools.set(pools.clone()).is_ok();
        debug_assert!(first, "called twice: the second pools would never be closed");
        let limit = args.database_startup_limit;
        postgres::check_durability(&pools.http, args.allow_unsafe_durability, limit).await?;
        pools.register_metrics(&self.metrics);
        flag.ok();
        self.tasks.spawn("watch_postgres", watch_postgres(pools.clone(), flag, self.stop.clone()));
        self.tasks.spawn("keep_connections", keep_connections(pools.clone(), self.stop.clone()));
        Ok(pools)
    }

    /// Connects to NATS as [`nats::connect`] does, from then on updates the readiness entry `nats`, and drains the
    /// connection at shutdown. Call it once.
    ///
    /// # Errors
    /// Those of [`nats::connect`].
    pub async fn nats(&self, args: &NatsArgs) -> Result<Client, StartError> {
        let flag = self.readiness.register("nats");
        let client = nats::connect(args, self.service.name).await?;
        let first = self.client.set(client.clone()).is_ok();
        debug_assert!(first, "called twice: the second connection would never be drained");
        flag.ok();
        self.tasks.spawn("watch_nats", watch_nats(client.clone(), flag, self.stop.clone()));
        Ok(client)
    }

    /// Waits for background work, then closes the connections: each within `limit`. `stop` must be cancelled.
    pub async fn finish(&self, limit: Duration) {
        self.tasks.finish(limit).await;
        if let Some(client) = self.client.get()
            && timeout(limit, client.drain()).await.is_err()
        {
            tracing::warn!("the NATS connection could not be drained in time");
        }
        // Waits for detached writes, which hold a connection until their commit.
        if let Some(pools) = self.pools.get()
            && timeout(limit, pools.close()).await.is_err()
        {
            tracing::warn!("database connections were still in use at the end");
        }
    }
}

async fn watch_postgres(pools: Pools, flag: ReadyFlag, stop: CancellationToken) {
    let mut ticks = interval(WATCH_INTERVAL);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let answer = async {
            let mut connection = pools.http.acquire().await?;
            postgres::within(postgres::TEST_TIMEOUT, sqlx::query("select 1").execute(&mut *connection)).await
        };
        match answer.await {
            Ok(_) => flag.ok(),
            // A busy pool says nothing about the server, unless it has no open connection.
            Err(sqlx::Error::PoolTimedOut) if pools.serve_http() => {}
            Err(sqlx::Error::PoolTimedOut) => flag.failing("no connection can be opened"),
            Err(sqlx::Error::PoolClosed) => return stop.cancelled().await,
            // The reason is shown without authentication, so it does not repeat the server's error.
            Err(error) => {
                tracing::debug!(%error, "the database did not answer");
                flag.failing("the database does not answer");
            }
        }
    }
}

async fn keep_connections(pools: Pools, stop: CancellationToken) {
    stop.run_until_cancelled(pools.keep()).await;
}

async fn watch_nats(client: Client, flag: ReadyFlag, stop: CancellationToken) {
    let mut ticks = interval(WATCH_INTERVAL);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match client.connection_state() {
            State::Connected => flag.ok(),
            State::Pending | State::Disconnected => flag.failing("not connected"),
        }
    }
}
