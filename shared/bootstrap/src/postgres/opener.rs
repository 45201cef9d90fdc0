//! Opens a pool's connections, one after the other, without an overall timeout. A caller that waits for a connection must not
//! open it: its timeout would cancel the attempt half-way, the next caller would start again, and on a busy machine no attempt
//! would succeed. So a lost connection keeps its slot in the pool and is replaced there before it is used again.
//!
//! A process replaces one at a time, its pools in turn, and pauses ever longer while that fails: PostgreSQL starts a process for each attempt, also while it
//! replays its log after a crash. Six replicas with four pools each made 240 attempts a second, and the replay took twice as long.

use std::{fmt, io, sync::Arc, time::Duration};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The timeout of one attempt to connect.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed attempt; it doubles with each further one, until one succeeds.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The turn to open a connection, shared by the openers of a process: one attempt, with the pause after it if it fails. Who waits
/// gets it in order of arrival, so an attempt that hangs delays the others once.
pub(super) struct Turn(Mutex<Duration>);

impl Turn {
    pub(super) fn new() -> Self {
        Turn(Mutex::new(FIRST_PAUSE))
    }
}

/// The timeout of the test of a returned connection: a half-open one never responds.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for an idle connection.
const IDLE_TEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Opens the connections of one pool.
pub(crate) struct Opener {
    options: PgConnectOptions,
    turn: Arc<Turn>,
    /// Has a clone for each slot in the pool whose connection is lost and not yet replaced.
    lost: Arc<()>,
    stop: CancellationToken,
}

impl Opener {
    pub(super) fn new(options: PgConnectOptions, turn: Arc<Turn>, stop: CancellationToken) -> Self {
        Self { options, turn, lost: Arc::default(), stop }
    }

    /// The number of lost connections.
    pub(crate) fn lost(&self) -> u32 {
        u32::try_from(Arc::strong_count(&self.lost) - 1).unwrap_or(u32::MAX)
    }

    /// Tests a returned connection, and rolls back a transaction that is open on it.
    pub(super) async fn test(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tested = within(TEST_TIMEOUT, end_open_transaction(connection)).await;
        self.replace_if_lost(connection, tested).await
    }

    /// Tests an idle connection.
    pub(super) async fn test_idle(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tested = within(IDLE_TEST_TIMEOUT, expect_writable(connection)).await;
        self.replace_if_lost(connection, tested).await
    }

    /// Returns an error only when the process is stopping.
    async fn replace_if_lost(
        &self,
        connection: &mut PgConnection,
        tested: Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let Err(error) = tested else { return Ok(()) };
        tracing::warn!(%error, "a database connection is lost and will be replaced");
        let _lost = Arc::clone(&self.lost);
        let Some(fresh) = self.stop.run_until_cancelled(self.open()).await else { return Err(error) };
        // The old connection is dropped without an orderly close, which could block.
        *connection = fresh;
        Ok(())
    }

    async fn open(&self) -> PgConnection {
        loop {
            let mut pause = self.turn.0.lock().await;
            match attempt(&self.options).await {
                Ok(connection) => {
                    *pause = FIRST_PAUSE;
                    return connection;
                }
                Err(error) => tracing::debug!(%error, "a database connection cannot be opened yet"),
            }
            // Not in step with other processes.
            sleep(pause.mul_f64(rand::random_range(0.5..=1.0))).await;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Without the options, which hold the password.
impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

/// Opens one connection to a server that accepts writes.
pub(super) async fn attempt(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    within(ATTEMPT_TIMEOUT, async {
        let mut connection = PgConnection::connect_with(options).await?;
        expect_writable(&mut connection).await?;
        Ok(connection)
    })
    .await
}

/// After the promotion of a standby, the old primary may accept connections, and only read.
pub(super) async fn expect_writable(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let read_only: String = sqlx::query_scalar("show transaction_read_only").fetch_one(connection).await?;
    match read_only.as_str() {
        "off" => Ok(()),
        _ => Err(sqlx::Error::Io(io::Error::other("the server is read-only"))),
    }
}

/// Runs a request to the server with a timeout.
///
/// # Errors
/// That of the request; [`sqlx::Error::Io`] after `limit`.
pub async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "the server does not answer on this connection");
    timeout(limit, answer).await.unwrap_or_else(|_| Err(sqlx::Error::Io(timed_out())))
}

/// When a caller is dropped inside `begin`, sqlx 0.9.0 returns the connection with the transaction open and its own depth at
/// zero. sqlx does not expose the server's transaction status, but `begin_with` reports it: an empty statement "begins" a
/// transaction only where one is open already. This costs one round trip, after the caller has continued, and no `ROLLBACK`
/// warning in the server's log.
async fn end_open_transaction(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match connection.begin_with("").await {
        Err(sqlx::Error::BeginFailed) => Ok(()),
        Ok(leftover) => {
            tracing::warn!("rolled back a transaction that its owner left open");
            leftover.rollback().await
        }
        // The state is unknown: replace the connection.
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The other pool takes its turns by hand, and leaves the pause as it finds it.
    #[tokio::test(start_paused = true)]
    async fn pools_take_turns_by_the_attempt_and_share_the_pause() {
        // The system accepts the connections, and nobody answers on them.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = silent.local_addr().expect("its address").port();
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port);
        let turn = Arc::new(Turn::new());
        let opener = Opener::new(options, Arc::clone(&turn), CancellationToken::new());
        let another_pool = async {
            for shared in [FIRST_PAUSE * 2, FIRST_PAUSE * 4, LONGEST_PAUSE] {
                let its_turn = timeout(ATTEMPT_TIMEOUT + LONGEST_PAUSE, turn.0.lock()).await;
                let pause = its_turn.expect("a turn lasts longer than an attempt and the pause after it");
                assert_eq!(*pause, shared, "the pause is not that after one more failed attempt");
            }
        };
        tokio::select! {
            // The opener is first in the line.
            biased;
            _ = opener.open() => panic!("nobody answers"),
            () = another_pool => {}
        }
    }
}
