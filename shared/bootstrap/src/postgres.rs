//! Connections to PostgreSQL in four pools, so that a burst of one kind of work cannot starve another, with the timeouts of
//! all statements. The pools are full before the service is ready, and stay so: a caller never opens a connection itself. A
//! connection never returns to its pool with an open transaction.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use prometheus_client::metrics::gauge::ConstGauge;
use sqlx::{
    Connection as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{config::PostgresArgs, error::StartError, metrics::Metrics, readiness::ReadyFlag, wait::every_second};

mod opener;
mod schema;

pub(crate) use opener::TEST_TIMEOUT;
pub use opener::within;
use opener::{Opener, Turn};
pub use schema::{check_durability, expect_migrations};

/// Consumers and the relay may wait longer than HTTP handlers, because no client waits for them.
const BACKGROUND_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(2_500);
/// The interval at which each idle connection is tested, because its server may be gone or read-only. One lost connection has
/// all of a pool tested at once.
const TEST_EVERY: Duration = Duration::from_secs(4);
/// The statement timeout for lists and summaries, whose pool is small.
const READ_STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A service's connections, by purpose. Clones share them.
#[derive(Clone, Debug)]
pub struct Pools {
    /// For HTTP handlers: short acquire timeout.
    pub http: PgPool,
    /// For HTTP handlers that list or count: few, with a short statement timeout, so that readers do not block writers.
    pub read: PgPool,
    /// For consumers and housekeeping.
    pub work: PgPool,
    /// For the outbox relay and its lease.
    pub relay: PgPool,
    openers: [Arc<Opener>; 4],
}

/// Opens all connections, with `search_path = <schema>, saga`, and retries once a second with one log line each until the
/// startup limit. Lost connections are replaced until `stop` is cancelled.
///
/// # Errors
/// [`StartError::Configuration`] for a malformed URL, [`StartError::PostgresUnreachable`] after the limit.
pub async fn connect(
    args: &PostgresArgs,
    schema: &str,
    app_name: &str,
    ready: &ReadyFlag,
    stop: &CancellationToken,
) -> Result<Pools, StartError> {
    let options = options(args, schema)?;
    let server = format!("PostgreSQL at {}", server_of(&options));
    let limit = args.database_startup_limit;
    let unreachable = |source| StartError::PostgresUnreachable { server: server_of(&options), limit, source };
    ready.failing("no connection can be opened");
    let connection =
        every_second(limit, &server, async || opener::attempt(&options).await).await.map_err(unreachable)?;
    // A failure to close the test connection does not matter.
    let _ = connection.close().await;

    let turn = Arc::new(Turn::new());
    let pool = async |purpose: &'static str, size: u32, acquire_timeout: Duration, statement_timeout: Duration| {
        let options = options.clone().application_name(&format!("{app_name}/{purpose}"));
        // Otherwise a statement is planned each time as long as that looks cheaper, which it does with few events (decision 50).
        // Lists have optional filters, and need it. At 100 orders a second 22 ms from order to end instead of 27, before the
        // relay's statements kept their plans, too.
        let plans = if purpose == "read" { "auto" } else { "force_generic_plan" };
        let options = options.options([
            ("statement_timeout", statement_timeout.as_millis().to_string()),
            ("plan_cache_mode", plans.to_owned()),
        ]);
        // The relay's read leaves out events behind a blocked one by a hash table, of a million aggregates at most.
        let options = if purpose == "relay" { options.options([("work_mem", "64MB")]) } else { options };
        let opener = Arc::new(Opener::new(options.clone(), Arc::clone(&turn), stop.clone()));
        let unopened = || pool_options(size, acquire_timeout, &opener).connect_lazy_with(options.clone());
        let target = format!("all {size} {purpose} connections to {server}");
        let pool = every_second(limit, &target, filled(unopened, size, purpose, &target, ready)).await?;
        Ok((pool, opener))
    };
    let statements = args.statement_timeout;
    let lists = statements.min(READ_STATEMENT_TIMEOUT);
    let ((http, http_opener), (read, read_opener), (work, work_opener), (relay, relay_opener)) = tokio::try_join!(
        pool("http", args.http_pool, args.acquire_timeout, statements),
        pool("read", args.read_pool, args.acquire_timeout, lists),
        pool("work", args.work_pool, BACKGROUND_ACQUIRE_TIMEOUT, statements),
        pool("relay", args.relay_pool, BACKGROUND_ACQUIRE_TIMEOUT, statements),
    )
    .map_err(unreachable)?;
    Ok(Pools { http, read, work, relay, openers: [http_opener, read_opener, work_opener, relay_opener] })
}

/// Attempts to get a pool whose connections are all open; one ends when for a second none has been opened. Only sqlx's background
/// task opens them: a caller that acquired one would take a slot, that task would end, and nobody would be left to open the
/// connection when the caller's timeout is shorter than the opening. The task also ends at its first error, so a pool that stops
/// growing is replaced.
fn filled<'a>(
    unopened: impl Fn() -> PgPool + 'a,
    size: u32,
    purpose: &'a str,
    target: &'a str,
    ready: &'a ReadyFlag,
) -> impl AsyncFnMut() -> Result<PgPool, sqlx::Error> + 'a {
    const SECOND: Duration = Duration::from_secs(1);
    let mut pool = unopened();
    let (mut grown, mut at) = (0, Instant::now());
    async move || {
        let began = Instant::now();
        let mut logged = began;
        loop {
            let open = pool.num_idle();
            if open >= size as usize {
                return Ok(pool.clone());
            }
            ready.failing(format!("{open} of {size} {purpose} connections are open"));
            if open > grown {
                (grown, at) = (open, Instant::now());
            } else if at.elapsed() > opener::ATTEMPT_TIMEOUT {
                // The task that opens its connections keeps it until its latest attempt ends.
                while let Some(connection) = pool.try_acquire() {
                    drop(connection.detach());
                }
                drop(pool.close());
                (pool, grown, at) = (unopened(), 0, Instant::now());
            }
            if at.max(began).elapsed() > SECOND {
                return Err(sqlx::Error::PoolTimedOut);
            }
            if logged.elapsed() > SECOND {
                logged = Instant::now();
                tracing::warn!("waiting for {target}: {open} are open");
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Pools {
    /// Closes all connections, after those in use have been returned.
    pub async fn close(&self) {
        tokio::join!(self.http.close(), self.read.close(), self.work.close(), self.relay.close());
    }

    /// Registers `database_pool_connections{pool, state}` with state `idle` or `used`.
    pub fn register_metrics(&self, metrics: &Metrics) {
        let pools = self.clone();
        metrics.on_scrape(move |scrape| {
            let connections = pools.named().into_iter().flat_map(|(name, pool, opener)| {
                let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
                let used = (i64::from(pool.size()) - idle - i64::from(opener.lost())).max(0);
                let count = |(state, count)| ([("pool", name), ("state", state)], ConstGauge::new(count));
                [("idle", idle), ("used", used)].map(count)
            });
            scrape.family("database_pool_connections", "Open database connections", connections)
        });
    }

    /// Whether the HTTP pool has any open connection, in use or not.
    pub(crate) fn serve_http(&self) -> bool {
        let [opener, ..] = &self.openers;
        opener.lost() < self.http.size()
    }

    /// Tests idle connections for as long as it is polled.
    pub(crate) async fn keep(&self) {
        let [http, read, work, relay] = self.named().map(|(_, pool, opener)| keep(pool, opener));
        tokio::join!(http, read, work, relay);
    }

    /// The pools with their names and openers.
    fn named(&self) -> [(&'static str, &PgPool, &Arc<Opener>); 4] {
        let [http, read, work, relay] = &self.openers;
        [
            ("http", &self.http, http),
            ("read", &self.read, read),
            ("work", &self.work, work),
            ("relay", &self.relay, relay),
        ]
    }
}

/// Tests one idle connection at a time, so that the others stay available; once one is lost, all of them.
async fn keep(pool: &PgPool, opener: &Arc<Opener>) {
    let mut tests = JoinSet::new();
    let mut ticks = interval(TEST_EVERY / pool.options().get_max_connections().max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while tests.try_join_next().is_some() {}
        let suspects = if opener.lost() > 0 { pool.num_idle() } else { 1 };
        for mut connection in (0..suspects).filter_map(|_| pool.try_acquire()) {
            let opener = Arc::clone(opener);
            tests.spawn(async move { opener.test_idle(&mut connection).await });
        }
    }
}

fn options(args: &PostgresArgs, schema: &str) -> Result<PgConnectOptions, StartError> {
    let url = args.database_url.expose();
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| StartError::Configuration(format!("DATABASE_URL is not usable: {error}")))?;
    let milliseconds = |limit: Duration| limit.as_millis().to_string();
    Ok(options.options([
        ("search_path", format!("{schema},saga")),
        ("lock_timeout", milliseconds(args.lock_timeout)),
        // Also the longest delay of a commit by an injected fault.
        ("idle_in_transaction_session_timeout", "30000".to_owned()),
        // A prepared statement keeps its plan, which may date from when the table was empty and a sequential scan was best.
        // Services look up rows by key, with an index at any size; without an index PostgreSQL still scans the table, at a
        // cost that would trigger JIT compilation. 494 sagas/s instead of 298, and 559 without bitmaps.
        ("enable_seqscan", "off".to_owned()),
        ("enable_bitmapscan", "off".to_owned()),
        ("jit", "off".to_owned()),
        // The server detects within a minute that this process's machine is gone, and releases its locks.
        ("tcp_keepalives_idle", "30".to_owned()),
        ("tcp_keepalives_interval", "10".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
    ]))
}

fn pool_options(size: u32, acquire_timeout: Duration, opener: &Arc<Opener>) -> PgPoolOptions {
    let opener = Arc::clone(opener);
    PgPoolOptions::new()
        .max_connections(size)
        // sqlx opens these one after the other, in the background.
        .min_connections(size)
        // A replacement for an expired connection would be opened by the caller that waits for it.
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(acquire_timeout)
        // It is tested after each use, and while it is idle.
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(opener::expect_writable(connection)))
        .after_release(move |connection, _| {
            let opener = Arc::clone(&opener);
            Box::pin(async move { opener.test(connection).await.map(|()| true) })
        })
}

fn server_of(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}:{}/{database}", options.get_port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{config::parsed, readiness::Readiness};

    async fn refused(url: &str) -> StartError {
        let args: PostgresArgs = parsed(&["--database-url", url, "--database-startup-limit", "0s"]);
        let ready = Readiness::default().register("postgres");
        connect(&args, "orders", "order", &ready, &CancellationToken::new()).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_server_that_does_not_appear_is_named_without_its_password() {
        // Port 1 is reserved and closed.
        let text = refused("postgres://u:hunter2@127.0.0.1:1/shop").await.to_string();
        assert!(text.contains("127.0.0.1:1/shop") && text.contains("DATABASE_URL"), "{text}");
        assert!(!text.contains("hunter2"));
    }

    #[tokio::test]
    async fn a_malformed_url_is_refused_at_once() {
        assert!(matches!(refused("nonsense").await, StartError::Configuration(_)));
    }
}
