//! Connections to PostgreSQL in four pools, so that a burst in one place cannot starve another, with the time limits
//! every statement lives under. A connection never goes back to its pool with a transaction open.

use std::{str::FromStr as _, time::Duration};

use sqlx::{
    Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use crate::{config::PostgresArgs, error::StartError, lifecycle::every_second};

mod collector;
mod schema;

pub use collector::register_metrics;
pub use schema::{check_durability, expect_migrations};

/// How long one attempt to connect may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// Consumers and the relay wait longer than an HTTP client would: they have nobody to answer.
const BACKGROUND_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(2_500);
/// A connection that idled longer is tested before use, because its server may be gone.
const TRUSTED_IDLE_TIME: Duration = Duration::from_secs(1);
/// A list or a summary that takes longer has gone wrong, and its connection is one of few.
const READ_STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the test of a connection may take. The server of a half-open one never answers, and without a limit its place
/// in the pool would be lost for ever.
const TEST_LIMIT: Duration = Duration::from_secs(5);
/// Before use it must leave time to open another one: a caller waits for a second at least.
const BORROW_TEST_LIMIT: Duration = Duration::from_millis(500);

/// A service's connections, by purpose. Clones share them.
#[derive(Clone, Debug)]
pub struct Pools {
    /// For HTTP handlers: gives up fast.
    pub http: PgPool,
    /// For HTTP handlers that list or count: few, with statements that end soon, so that readers keep nobody from writing.
    pub read: PgPool,
    /// For consumers and housekeeping.
    pub work: PgPool,
    /// For the outbox relay and its lease.
    pub relay: PgPool,
}

/// Connects with `search_path = <schema>, saga`, retrying once a second with one log line each until the
/// startup limit.
///
/// # Errors
/// [`StartError::Configuration`] for a malformed URL, [`StartError::PostgresUnreachable`] after the limit.
pub async fn connect(args: &PostgresArgs, schema: &str, app_name: &str) -> Result<Pools, StartError> {
    let options = options(args, schema)?;
    let server = server_of(&options);
    let limit = args.database_startup_limit;
    let connection = every_second(limit, &format!("PostgreSQL at {server}"), async || {
        match timeout(ATTEMPT_LIMIT, PgConnection::connect_with(&options)).await {
            Ok(result) => result,
            Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
        }
    })
    .await
    .map_err(|source| StartError::PostgresUnreachable { server, limit, source })?;
    // It has served its purpose; a failure to say goodbye is none of ours.
    let _ = connection.close().await;

    let pool = |purpose: &str, size: u32, acquire_timeout: Duration, statement_timeout: Duration| {
        let options = options.clone().application_name(&format!("{app_name}/{purpose}"));
        let options = options.options([("statement_timeout", statement_timeout.as_millis().to_string())]);
        pool_options(size, acquire_timeout).connect_lazy_with(options)
    };
    let limit = args.statement_timeout;
    Ok(Pools {
        http: pool("http", args.http_pool, args.acquire_timeout, limit),
        read: pool("read", args.read_pool, args.acquire_timeout, limit.min(READ_STATEMENT_TIMEOUT)),
        work: pool("work", args.work_pool, BACKGROUND_ACQUIRE_TIMEOUT, limit),
        relay: pool("relay", args.relay_pool, BACKGROUND_ACQUIRE_TIMEOUT, limit),
    })
}

impl Pools {
    /// Closes all connections, after those in use have been given back.
    pub async fn close(&self) {
        tokio::join!(self.http.close(), self.read.close(), self.work.close(), self.relay.close());
    }

    /// The pools with their names.
    pub fn named(&self) -> [(&'static str, &PgPool); 4] {
        [("http", &self.http), ("read", &self.read), ("work", &self.work), ("relay", &self.relay)]
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
        // For as long a fault on purpose may delay a commit.
        ("idle_in_transaction_session_timeout", "30000".to_owned()),
        // A prepared statement keeps its plan, which may date from when the table was empty and reading all of it was best.
        // Services look rows up by key, which an index serves at any size; whatever no index serves is still read whole,
        // at a price that would make PostgreSQL compile the plan.
        ("enable_seqscan", "off".to_owned()),
        ("enable_bitmapscan", "off".to_owned()),
        ("jit", "off".to_owned()),
        // The server notices within a minute that this process's machine is gone, and frees its locks.
        ("tcp_keepalives_idle", "30".to_owned()),
        ("tcp_keepalives_interval", "10".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
    ]))
}

fn pool_options(size: u32, acquire_timeout: Duration) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(acquire_timeout)
        // sqlx would test on every acquire, which costs a busy pool a round trip per use.
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED_IDLE_TIME {
                    timeout(BORROW_TEST_LIMIT, connection.ping()).await.map_err(|_| no_answer())??;
                }
                Ok(true)
            })
        })
        .after_release(|connection, _| {
            Box::pin(
                async move { timeout(TEST_LIMIT, end_open_transaction(connection)).await.map_err(|_| no_answer())? },
            )
        })
}

fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the server does not answer on this connection"))
}

/// When a caller is dropped inside `begin`, sqlx 0.9.0 gives the connection back with the transaction open and
/// its own depth at zero. sqlx does not expose the server's transaction status, but `begin_with` reports it: an
/// empty statement "begins" only where a transaction is open already. This costs one round trip, after
/// the caller has gone on, and no `ROLLBACK` warning in the server's log.
async fn end_open_transaction(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    match connection.begin_with("").await {
        Err(sqlx::Error::BeginFailed) => Ok(true),
        Ok(leftover) => {
            tracing::warn!("rolled back a transaction that its owner left open");
            leftover.rollback().await?;
            Ok(true)
        }
        // Close the connection rather than guess its state, and without a goodbye that nobody may be there to hear.
        Err(error) => Err(error),
    }
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
    use crate::config::Secret;

    fn args(url: &str) -> PostgresArgs {
        PostgresArgs {
            database_url: Secret::new(url),
            http_pool: 1,
            read_pool: 1,
            work_pool: 1,
            relay_pool: 1,
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            acquire_timeout: Duration::from_secs(1),
            database_startup_limit: Duration::ZERO,
            allow_unsafe_durability: false,
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_appear_is_named_without_its_password() {
        // Port 1 is reserved and closed.
        let error = connect(&args("postgres://u:hunter2@127.0.0.1:1/shop"), "orders", "order").await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("127.0.0.1:1/shop") && text.contains("DATABASE_URL"), "{text}");
        assert!(!text.contains("hunter2"));
    }

    #[tokio::test]
    async fn a_malformed_url_is_refused_at_once() {
        let error = connect(&args("nonsense"), "orders", "order").await.unwrap_err();
        assert!(matches!(error, StartError::Configuration(_)));
    }
}
