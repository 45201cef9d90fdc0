//! Opens a pool's connections, one after the other, for as long as it takes. Whoever waits for a connection must not open
//! it: with too little time left it gives up half-way, the next one begins again, and on a busy machine that goes on for
//! ever. So a lost connection keeps its place in the pool, and is replaced there before anybody else has it.

use std::{
    fmt, io,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long one attempt to connect may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// From a failed attempt to the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the server may take to say that nothing goes on any more on a connection. On a half-open one it never does.
pub(crate) const TEST_LIMIT: Duration = Duration::from_secs(5);
/// The same where nothing went on.
const IDLE_TEST_LIMIT: Duration = Duration::from_millis(500);

/// What opens the connections of one pool.
pub(crate) struct Opener {
    options: PgConnectOptions,
    turn: Semaphore,
    lost: AtomicU32,
    stop: CancellationToken,
}

impl Opener {
    pub(super) fn new(options: PgConnectOptions, stop: CancellationToken) -> Self {
        Self { options, turn: Semaphore::new(1), lost: AtomicU32::new(0), stop }
    }

    /// How many connections have a place in the pool, and are not open.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Tests a connection that somebody has used, and ends what is left open on it.
    pub(super) async fn test(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tested = within(TEST_LIMIT, end_open_transaction(connection)).await;
        self.replace_if_lost(connection, tested).await
    }

    /// Tests a connection that nobody uses.
    pub(super) async fn test_idle(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tested = within(IDLE_TEST_LIMIT, connection.ping()).await;
        self.replace_if_lost(connection, tested).await
    }

    /// An error when the process is about to end.
    async fn replace_if_lost(
        &self,
        connection: &mut PgConnection,
        tested: Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let Err(error) = tested else { return Ok(()) };
        tracing::warn!(%error, "a database connection is lost, and will be replaced");
        let _lost = Lost::count(&self.lost);
        let Some(fresh) = self.stop.run_until_cancelled(self.open()).await else { return Err(error) };
        // The other one is closed without a goodbye that nobody may be there to hear.
        *connection = fresh;
        Ok(())
    }

    async fn open(&self) -> PgConnection {
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await.ok();
        loop {
            match attempt(&self.options).await {
                Ok(connection) => return connection,
                Err(error) => tracing::debug!(%error, "a database connection cannot be opened yet"),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Options hold the password.
impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Counts down again also when the process ends meanwhile.
struct Lost<'a>(&'a AtomicU32);

impl<'a> Lost<'a> {
    fn count(lost: &'a AtomicU32) -> Self {
        lost.fetch_add(1, Ordering::Relaxed);
        Self(lost)
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens one connection.
pub(super) async fn attempt(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    within(ATTEMPT_LIMIT, PgConnection::connect_with(options)).await
}

/// The server's answer, or that there is none.
pub(crate) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let silence = || io::Error::new(io::ErrorKind::TimedOut, "the server does not answer on this connection");
    timeout(limit, answer).await.unwrap_or_else(|_| Err(sqlx::Error::Io(silence())))
}

/// When a caller is dropped inside `begin`, sqlx 0.9.0 gives the connection back with the transaction open and
/// its own depth at zero. sqlx does not expose the server's transaction status, but `begin_with` reports it: an
/// empty statement "begins" only where a transaction is open already. This costs one round trip, after
/// the caller has gone on, and no `ROLLBACK` warning in the server's log.
async fn end_open_transaction(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match connection.begin_with("").await {
        Err(sqlx::Error::BeginFailed) => Ok(()),
        Ok(leftover) => {
            tracing::warn!("rolled back a transaction that its owner left open");
            leftover.rollback().await
        }
        // Replace the connection rather than guess its state.
        Err(error) => Err(error),
    }
}
