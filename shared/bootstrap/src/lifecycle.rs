//! The lifecycle of a service: it answers health checks from the start, becomes ready when its dependencies are available, and
//! stops in order: intake first, then background work, then connections, then telemetry. A background task that ends by itself
//! ends the process, because a service without it must not look healthy.

use std::{
    pin::{Pin, pin},
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use axum::Router;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    config::BaseArgs,
    error::StartError,
    http::{ServiceInfo, Shell, assemble, chain, serve, starting},
    readiness::ReadyFlag,
    telemetry,
};

mod startup;
mod tasks;

pub use startup::Startup;
pub use tasks::{Task, TaskFailed, Tasks};

/// The time to export the last spans.
const TELEMETRY_TIMEOUT: Duration = Duration::from_secs(3);

/// The routes and tasks of a service.
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

/// Runs a service from configuration to exit code. `build` connects to its dependencies and composes the service;
/// meanwhile `/health/live` is 200 and everything else 503. Ends on SIGTERM, SIGINT, or a failed task.
pub async fn run(
    service: ServiceInfo,
    args: &BaseArgs,
    build: impl AsyncFnOnce(Startup) -> anyhow::Result<Service>,
) -> ExitCode {
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
    telemetry.shutdown(TELEMETRY_TIMEOUT).await;
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn live(
    service: ServiceInfo,
    args: &BaseArgs,
    build: impl AsyncFnOnce(Startup) -> anyhow::Result<Service>,
) -> anyhow::Result<()> {
    args.check()?;
    let stop = pin!(stop_signal()?);
    let address = args.http.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
    let startup = Startup::new(service);
    // Before the server listens: without a registered dependency the service would seem ready.
    let started = startup.readiness.register("startup");
    let shell = Shell::new(service, &args.http, startup.readiness.clone(), startup.metrics.clone());
    let (starting, complete) = (starting(&shell), Arc::new(OnceLock::new()));
    let intake = CancellationToken::new();
    #[expect(clippy::disallowed_methods, reason = "joined a few lines below")]
    let http = tokio::spawn({
        let complete = complete.clone();
        let router = move || complete.get().unwrap_or(&starting).clone();
        serve(listener, router, args.http.clone(), intake.clone())
    });

    let outcome = work(&startup, started, &shell, &complete, build, stop).await;

    startup.draining.cancel();
    intake.cancel();
    let drained = http.await.context("the HTTP server failed");
    startup.stop.cancel();
    startup.finish(args.http.drain_timeout).await;
    outcome.and(drained)
}

/// Runs from the first dependency to the stop signal.
async fn work(
    startup: &Startup,
    started: ReadyFlag,
    shell: &Shell,
    complete: &OnceLock<Router>,
    build: impl AsyncFnOnce(Startup) -> anyhow::Result<Service>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<()> {
    tracing::info!(service = shell.service.name, version = shell.service.version, "starting");
    let service = tokio::select! {
        service = build(startup.clone()) => service?,
        () = stop.as_mut() => return Ok(()),
        failure = startup.tasks.failed() => return Err(failure.into()),
    };
    let (router, _) = assemble(shell, service.api);
    // Set only here, once.
    let _ = complete.set(router);
    for (name, task) in service.tasks {
        startup.tasks.spawn(name, task);
    }
    started.ok();
    tokio::select! {
        () = stop => {
            started.failing("shutting down");
            Ok(())
        }
        failure = startup.tasks.failed() => Err(failure.into()),
    }
}

/// Waits for a stop signal. The handlers are installed by the call, so that none is missed.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    })
}
