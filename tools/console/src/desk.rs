//! The desk: pages where people look at orders, sagas and what needs attention, and act. They read with the auditor's rights, ask
//! order to explain what an order waits for, and act through the services' own administration.

mod act;
mod actions;
mod attention;
mod event;
mod hosts;
mod journey;
mod live;
mod manage;
mod orders;
mod runs;
mod session;
mod shell;
pub(crate) mod store;
mod tokens;

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::http::{HeaderMap, StatusCode};
use bootstrap::{CancellationToken, Problem};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::Semaphore;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use attention::attention;
pub(crate) use hosts::{Hosts, expect_own};
pub(crate) use live::live;
pub(crate) use shell::{HtmlPage, page};
pub(crate) use tokens::Tokens;

use self::session::{Session, Sessions};
use crate::{
    operations::Confirmations,
    runs::Runs,
    suite::{Addresses, Suite},
};

/// What the pages read. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) pool: PgPool,
    pub(crate) suite: Suite,
    pub(crate) tokens: Tokens,
    sessions: Sessions,
    pub(crate) confirmations: Confirmations,
    pub(crate) runs: Runs,
    /// A permit for each page that may be open.
    open_pages: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Desk {
    /// Connects when a page is first asked for: the console also starts, and receives alerts, while the database is away.
    pub(crate) fn new(
        database_url: &str,
        addresses: Addresses,
        tokens: Tokens,
        runs: Runs,
        stop: CancellationToken,
    ) -> anyhow::Result<Desk> {
        const CONNECTIONS: u32 = 3;
        let limits = [("statement_timeout", "5000"), ("lock_timeout", "1000"), ("default_transaction_read_only", "on")];
        let options = PgConnectOptions::from_str(database_url).context("DATABASE_URL")?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(options.application_name("desk").options(limits));
        Ok(Desk {
            pool,
            tokens,
            runs,
            suite: Suite::new(addresses).context("no HTTP client")?,
            sessions: Sessions::default(),
            confirmations: Confirmations::default(),
            open_pages: Arc::new(Semaphore::new(live::MAX_OPEN)),
            stop,
        })
    }
}

pub(crate) fn routes(desk: Desk) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(orders::list))
        .routes(routes!(journey::show))
        .routes(routes!(manage::show))
        .routes(routes!(event::show))
        .routes(routes!(event::dead_letter))
        .routes(routes!(actions::list))
        .routes(routes!(runs::list, runs::begin))
        .routes(routes!(runs::show))
        .routes(routes!(runs::answer))
        .routes(routes!(runs::stop))
        .routes(routes!(act::form, act::operate))
        .routes(routes!(session::form, session::login))
        .routes(routes!(session::logout))
        .with_state(desk)
        .merge(live::routes())
}

impl Desk {
    /// The session of a request, if there is one. That a page is kept current is no use of it.
    fn session(&self, headers: &HeaderMap) -> Option<Session> {
        if live::is_stream(headers) { self.sessions.seen(headers) } else { self.sessions.of(headers) }
    }

    /// The same for a page that reloads itself.
    pub(crate) fn session_seen(&self, headers: &HeaderMap) -> Option<Session> {
        self.sessions.seen(headers)
    }
}

/// Why a page cannot be shown.
fn unreadable(error: &sqlx::Error) -> Problem {
    tracing::warn!(%error, "a page cannot be shown");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "The suite's database cannot be read now.")
}
