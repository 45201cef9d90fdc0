//! `console audit --watch`: audits repeatedly while the suite works, and serves the results as metrics and on a page beside the
//! alerts of Alertmanager. It does not wait for quiescence.

mod alerts;
mod board;
mod events;
mod metrics;
mod page;
mod rounds;
mod runbook;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use axum::middleware::from_fn_with_state;
use bootstrap::{BaseArgs, Service, ServiceInfo};
use clap::Parser;
use tokio::sync::oneshot;

use self::{alerts::AlertBook, metrics::AuditMetrics, rounds::Served};
pub(crate) use self::{board::Board, rounds::Rounds};
use crate::{
    audit::AuditArgs,
    desk::{self, Desk, Hosts, Tokens, expect_own},
    mcp,
    suite::Addresses,
};

const SERVICE: ServiceInfo = ServiceInfo {
    name: "console",
    title: "Console",
    description: "Audits the running suite repeatedly, and receives alerts. [The events of the suite](/asyncapi.json), as AsyncAPI.",
    version: env!("CARGO_PKG_VERSION"),
};

/// The options of `console audit --watch`.
#[derive(Debug, Clone, clap::Args)]
pub struct WatchArgs {
    /// Audit repeatedly, without waiting for work in flight, and serve /metrics, /alerts and a page
    #[arg(long, conflicts_with_all = ["settle", "json", "allow_dead_letters", "whole"])]
    pub watch: bool,
    /// Interval between the starts of two audits; longer after slow audits
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, requires = "watch")]
    every: Duration,
    /// Address and port to listen on
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8085")]
    listen: SocketAddr,
    /// Which log lines are written; rmcp, which serves the tools, has several for each call
    #[arg(long, env = "RUST_LOG", default_value = "info,rmcp=warn")]
    log_filter: String,
    /// A name under which browsers reach it, besides addresses and names without a dot: pages are refused under others
    #[arg(long = "host", env = "CONSOLE_HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Who has this token may act, but not destroy or arm faults; the admin token may all
    #[arg(long, env = "OPERATOR_TOKEN", hide_env_values = true)]
    operator_token: Option<String>,
    /// Who has this token may call the tools that read
    #[arg(long, env = "VIEWER_TOKEN", hide_env_values = true)]
    viewer_token: Option<String>,
}

impl WatchArgs {
    fn tokens(&self, addresses: &Addresses) -> Tokens {
        Tokens::new(&addresses.admin_token, self.operator_token.as_deref(), self.viewer_token.as_deref())
    }
}

/// The settings that every server takes from the environment.
#[derive(Debug, Parser)]
struct Settings {
    #[command(flatten)]
    base: BaseArgs,
}

/// Serves until the process is asked to stop. `Ok(false)` when it ended for another reason.
pub async fn command(args: &AuditArgs) -> anyhow::Result<bool> {
    let listen = args.watch.listen.to_string();
    // A notification holds a whole group of alerts.
    let log_filter = &args.watch.log_filter;
    let settings = ["console", "--listen", &listen, "--log-filter", log_filter, "--body-limit", "4194304"];
    let settings = Settings::try_parse_from(settings)?;
    let (ready_to_audit, rounds) = oneshot::channel();
    let serve = bootstrap::run(SERVICE, &settings.base, async |startup| {
        let metrics = AuditMetrics::register(&startup.metrics);
        startup.metrics.build_info(SERVICE.version, "");
        let (board, alerts) = (Board::default(), AlertBook::default());
        let rounds = Rounds {
            stores: args.stores.clone(),
            gateway_url: args.addresses.gateway_url.clone(),
            every: args.watch.every,
            board: board.clone(),
            served: Some(Served { metrics: metrics.clone(), ready: startup.readiness.register("audit") }),
            stop: startup.stop.clone(),
        };
        // The receiver is dropped only when the process is about to end.
        let _ = ready_to_audit.send(rounds);
        let desk = Desk::new(
            &args.stores.database_url,
            args.addresses.clone(),
            args.watch.tokens(&args.addresses),
            startup.stop.clone(),
        )?;
        let pages = mcp::routes(desk.clone(), board.clone())
            .merge(page::routes(board, alerts.clone(), desk.clone()))
            .merge(runbook::routes(desk.clone()))
            .merge(events::routes())
            .merge(desk::routes(desk))
            .merge(alerts::routes(alerts, metrics))
            .layer(from_fn_with_state(Hosts::new(&args.watch.hosts), expect_own));
        Ok(Service::new(pages))
    });
    // Not in one of the server's tasks, which must be `Send`.
    let audit = async {
        if let Ok(rounds) = rounds.await {
            rounds.run().await;
        }
    };
    let (ended, ()) = tokio::join!(serve, audit);
    Ok(ended == ExitCode::SUCCESS)
}
