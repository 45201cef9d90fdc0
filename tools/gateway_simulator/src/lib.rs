//! A simulated external card processor: `http` has the routes, `gateway` answers requests or drops them, `domain` is the ledger,
//! `journal` writes it to disk, `card` and `faults` decide what fails. It knows no orders, sagas or events; of `contracts` it
//! uses only the rules for charges.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bootstrap::{
    CancellationToken, ServiceInfo, Shell, Startup, Task,
    http::{assemble, serve},
};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    gateway::Gateway,
    journal::{Journal, JournalCounters, JournalError},
};

pub mod card;
pub mod charge;
pub mod config;
pub mod domain;
pub mod faults;
pub mod gateway;
pub mod http;
pub mod journal;
pub mod journal_line;

pub use config::Config;

/// The name in logs, traces and the OpenAPI document.
pub const SERVICE: ServiceInfo = ServiceInfo {
    name: "gateway_simulator",
    title: "Card processor (simulated)",
    description: "Charges, refunds and voids test cards, exactly once per idempotency key. A real HTTP server with a \
                  durable journal and injectable faults.",
    version: env!("CARGO_PKG_VERSION"),
};

/// The simulator in this process; dropping it cuts every connection, as a crash would.
#[derive(Debug)]
pub struct RunningGateway {
    /// `http://127.0.0.1:<port>`
    pub base_url: String,
    /// Where it listens.
    pub address: SocketAddr,
    startup: Startup,
    drain_timeout: Duration,
    /// Dropped in this order, so that a task that ends at the second sees that it was stopped.
    _end: [DropGuard; 2],
}

/// Why the simulator could not start in this process.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Starts the simulator in this process, for tests.
pub async fn start(config: Config) -> Result<RunningGateway, StartError> {
    let startup = Startup::new(SERVICE);
    let shell = Shell::new(SERVICE, &config.base.http, startup.readiness.clone(), startup.metrics.clone());
    let (api, (name, watch)) = build(&startup, &config).await?;
    let (router, _) = assemble(&shell, api);

    let configured = config.base.http.listen;
    let listen_error = |source| StartError::Listen { address: configured, source };
    let listener = TcpListener::bind(configured).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let drain_timeout = config.base.http.drain_timeout;
    let server = serve(listener, move || router.clone(), config.base.http, startup.stop.clone());
    let crash = CancellationToken::new();
    startup.tasks.spawn(name, watch);
    startup.tasks.spawn("http", {
        let crash = crash.clone();
        async move {
            crash.run_until_cancelled(server).await;
        }
    });
    let end = [startup.stop.clone().drop_guard(), crash.drop_guard()];
    Ok(RunningGateway { base_url: format!("http://{address}"), address, startup, drain_timeout, _end: end })
}

impl RunningGateway {
    /// Lets requests in progress finish, then stops.
    pub async fn stop(self) {
        self.startup.stop.cancel();
        self.startup.finish(self.drain_timeout).await;
    }
}

/// Opens the journal and returns the routes with the task that ends the process when the journal fails: the ledger in memory may
/// then be ahead of the disk, and only a restart restores the durable state.
pub async fn build(startup: &Startup, config: &Config) -> Result<(OpenApiRouter, Task), JournalError> {
    let flag = startup.readiness.register("journal");
    let counters = JournalCounters::default();
    startup.metrics.build_info(SERVICE.version, "");
    startup.metrics.register(|registry| {
        registry.register("gateway_journal_entries", "Entries written to the journal", counters.entries.clone());
        registry.register("gateway_journal_syncs", "Syncs of the journal to disk", counters.syncs.clone());
    });
    let (path, fsync) = (config.journal.clone(), config.fsync);
    let opening = tokio::task::spawn_blocking(move || Journal::open(&path, fsync, counters));
    let panicked = |panic| JournalError::Open { path: config.journal.clone(), source: io::Error::other(panic) };
    let (journal, ledger) = opening.await.map_err(panicked)??;
    tracing::info!(journal = %config.journal.display(), entries = journal.position(), "journal replayed");
    flag.ok();
    let written = journal.written();
    let gateway = Arc::new(Gateway::new(ledger, journal, config.slow_answer));
    let stop = startup.stop.clone();
    let watch = async move {
        if stop.run_until_cancelled(written.stopped()).await.is_some() {
            flag.failing("the journal cannot be written");
        }
    };
    Ok((http::routes(gateway), ("journal", Box::pin(watch))))
}
