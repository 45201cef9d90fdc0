//! A service's life: it answers health checks from the first moment, becomes ready when its dependencies are there,
//! and ends in order: intake first, then background work, then connections, then telemetry. A background task that
//! ends on its own ends the process, because a service with half its work missing must not look healthy.

use std::{
    future::Future,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use axum::Router;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    config::BaseArgs,
    error::StartError,
    http::{ServeLimits, ServiceInfo, Shell, assemble, chain, serve, starting},
    metrics::Metrics,
    readiness::{Readiness, ReadyFlag},
    telemetry,
};

mod startup;
mod tasks;

pub use startup::Startup;
pub use tasks::{Task, TaskFailed, Tasks};

/// Time the last spans have to reach the collector.
const TELEMETRY_LIMIT: Duration = Duration::from_secs(3);

/// What a service is made of once its dependencies are there.
pub struct Service {
    api: OpenApiRouter,
    tasks: Vec<Task>,
}

impl Service {
    /// A service with these routes.
    pub fn new(api: OpenApiRouter) -> Self {
        Self { api, tasks: Vec::new() }
    }

    /// Adds background work that runs until [`Startup::stop`] is cancelled.
    #[must_use]
    pub fn with_tasks(mut self, tasks: impl IntoIterator<Item = Task>) -> Self {
        self.tasks.extend(tasks);
        self
    }
}

/// Runs a service from configuration to exit code. `build` connects to what the service needs and puts it together;
/// meanwhile `/health/live` is 200 and everything else 503. Ends on SIGTERM, SIGINT, or a failed task.
pub async fn run<F, Fut>(service: ServiceInfo, args: &BaseArgs, build: F) -> ExitCode
where
    F: FnOnce(Startup) -> Fut,
    Fut: Future<Output = anyhow::Result<Service>>,
{
    let telemetry = match telemetry::init(&service, &args.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            // There is no log to write to yet.
            eprintln!("{}: {error}", service.name);
            return ExitCode::FAILURE;
        }
    };
    let outcome = live(service, args, build).await;
    match &outcome {
        Ok(()) => tracing::info!(service = service.name, "stopped"),
        Err(error) => tracing::error!(service = service.name, "{}", chain(error.as_ref())),
    }
    telemetry.shutdown(TELEMETRY_LIMIT).await;
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn live<F, Fut>(service: ServiceInfo, args: &BaseArgs, build: F) -> anyhow::Result<()>
where
    F: FnOnce(Startup) -> Fut,
    Fut: Future<Output = anyhow::Result<Service>>,
{
    args.check()?;
    let mut signals = Signals::listen()?;
    let address = args.http.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
    let startup = Startup::new(service, Readiness::default(), Metrics::default());
    // Before anybody can ask: a service without any dependency yet would seem to be ready.
    let started = startup.readiness.register("startup");
    let shell = Shell::new(service, &args.http, startup.readiness.clone(), startup.metrics.clone());
    let app = LiveApp { starting: starting(&shell), complete: Arc::default() };
    let intake = CancellationToken::new();
    #[expect(clippy::disallowed_methods, reason = "joined a few lines below")]
    let http = tokio::spawn({
        let (app, limits) = (app.clone(), ServeLimits::from(&args.http));
        serve(listener, move || app.router(), limits, intake.clone())
    });

    let outcome = work(&startup, started, &shell, &app, build, &mut signals).await;

    startup.draining.cancel();
    intake.cancel();
    let drained = http.await.context("the HTTP server failed");
    startup.stop.cancel();
    startup.finish(args.http.drain_timeout).await;
    outcome.and(drained)
}

/// From the first dependency to the wish to stop.
async fn work<F, Fut>(
    startup: &Startup,
    started: ReadyFlag,
    shell: &Shell,
    app: &LiveApp,
    build: F,
    signals: &mut Signals,
) -> anyhow::Result<()>
where
    F: FnOnce(Startup) -> Fut,
    Fut: Future<Output = anyhow::Result<Service>>,
{
    tracing::info!(service = shell.service.name, version = shell.service.version, "starting");
    let service = tokio::select! {
        service = build(startup.clone()) => service?,
        () = signals.received() => return Ok(()),
        failure = startup.tasks.failed() => return Err(failure.into()),
    };
    let (router, _) = assemble(shell, service.api);
    // Set once, here; nobody else has the cell.
    let _ = app.complete.set(router);
    for (name, task) in service.tasks {
        startup.tasks.spawn(name, task);
    }
    started.ok();
    tokio::select! {
        () = signals.received() => {
            started.failing("shutting down");
            Ok(())
        }
        failure = startup.tasks.failed() => Err(failure.into()),
    }
}

/// The router that answers at present: the one for starting until the complete one exists.
#[derive(Clone)]
struct LiveApp {
    starting: Router,
    complete: Arc<OnceLock<Router>>,
}

impl LiveApp {
    fn router(&self) -> Router {
        self.complete.get().unwrap_or(&self.starting).clone()
    }
}

/// The operating system's wish that we stop; installed before anything else, so that none is missed.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    async fn received(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    }
}
