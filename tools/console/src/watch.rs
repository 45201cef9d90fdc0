//! `console audit --watch`: audits again and again while the suite works, serves what it found as metrics, and shows
//! it on a page beside the alerts that Alertmanager has sent. It never waits for the suite to settle.

mod alerts;
mod board;
mod metrics;
mod page;
mod rounds;
mod runbook;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use bootstrap::{BaseArgs, Service, ServiceInfo};
use clap::Parser;
use tokio::sync::oneshot;

use self::{alerts::AlertBook, board::Board, metrics::AuditMetrics, rounds::Rounds};
use crate::audit::Stores;

const SERVICE: ServiceInfo = ServiceInfo {
    name: "console",
    title: "Console",
    description: "Audits the running suite again and again, and receives alerts.",
    version: env!("CARGO_PKG_VERSION"),
};

/// How `console audit` goes on and on.
#[derive(Debug, Clone, clap::Args)]
pub struct WatchArgs {
    /// Audit again and again, without waiting for the suite to settle, and serve /metrics, /alerts and a page
    #[arg(long, conflicts_with_all = ["settle", "json", "allow_dead_letters", "whole"])]
    pub watch: bool,
    /// From the beginning of one audit to the beginning of the next; long audits pause longer
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, requires = "watch")]
    every: Duration,
    /// Address and port that serve what was found
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8085", requires = "watch")]
    listen: SocketAddr,
}

/// Logs, limits and the rest of what every server takes, from the environment.
#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    base: BaseArgs,
}

/// Serves until the process is asked to stop. `Ok(false)` when it ended for another reason.
pub async fn command(args: &WatchArgs, stores: &Stores, gateway_url: &str) -> anyhow::Result<bool> {
    let listen = args.listen.to_string();
    // A notification holds a whole group of alerts.
    let settings = Settings::try_parse_from(["console", "--listen", &listen, "--body-limit", "4194304"])?;
    let (ready_to_audit, rounds) = oneshot::channel();
    let serve = bootstrap::run(SERVICE, &settings.base, async |startup| {
        let metrics = AuditMetrics::register(&startup.metrics);
        startup.metrics.build_info(SERVICE.version, "");
        let (board, alerts) = (Board::default(), AlertBook::default());
        let rounds = Rounds {
            stores: stores.clone(),
            gateway_url: gateway_url.to_owned(),
            every: args.every,
            metrics: metrics.clone(),
            board: board.clone(),
            ready: startup.readiness.register("audit"),
            stop: startup.stop.clone(),
        };
        // Nobody listens any more only when the process is about to end.
        let _ = ready_to_audit.send(rounds);
        let api = alerts::routes(alerts.clone(), metrics).merge(page::routes(board, alerts)).merge(runbook::routes());
        Ok(Service::new(api))
    });
    // Beside the server and not in one of its tasks, which would have to be `Send`.
    let audit = async {
        if let Ok(rounds) = rounds.await {
            rounds.run().await;
        }
    };
    let (ended, ()) = tokio::join!(serve, audit);
    Ok(ended == ExitCode::SUCCESS)
}
