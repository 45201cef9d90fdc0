//! Response timeouts of the database. The server ends each statement after a while by itself, so a much longer wait means a
//! half-open connection, on which no response will come.

use std::{cell::Cell, io, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

/// The timeout of one response: longer than the longest statement timeout of the server, which is ten seconds.
const DATABASE_RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of several statements together.
pub(crate) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// After the timeout, the time to read a response that arrived while the process was frozen.
const READ_GRACE: Duration = Duration::from_millis(100);

tokio::task_local! {
    /// Since when the unit of work in this task waits for a response.
    static WAITING: Cell<Option<Instant>>;
}

/// Runs a statement with the timeout of one response.
///
/// # Errors
/// That of the statement, or an IO error when the database does not answer.
pub async fn statement_timeout<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(DATABASE_RESPONSE_TIMEOUT, statement).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Runs several statements with a common timeout.
pub(crate) async fn transaction_timeout<T, E: From<sqlx::Error>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(TRANSACTION_TIMEOUT, work).await.unwrap_or_else(|_| Err(timed_out().into()))
}

/// Runs `work`, and returns `on_timeout` when a unit of work in it waits for a response for too long. Waits outside a unit of
/// work are not limited.
pub(crate) async fn watch_responses<T>(work: impl Future<Output = T>, on_timeout: impl FnOnce(sqlx::Error) -> T) -> T {
    // Boxed, because the future of a step is large.
    let mut work = Box::pin(work);
    let watched = async move {
        loop {
            let due = WAITING.with(Cell::get).unwrap_or_else(Instant::now) + DATABASE_RESPONSE_TIMEOUT;
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = sleep_until(due) => {}
            }
            let since = WAITING.with(Cell::get);
            if since.is_some_and(|since| since.elapsed() >= DATABASE_RESPONSE_TIMEOUT) {
                match timeout(READ_GRACE, &mut work).await {
                    Ok(output) => return output,
                    Err(_) if WAITING.with(Cell::get) == since => return on_timeout(timed_out()),
                    Err(_) => {}
                }
            }
        }
    };
    WAITING.scope(Cell::new(None), watched).await
}

/// Part of a transaction: records since when it waits for a response.
#[derive(Debug)]
pub(crate) struct ResponseWatch(());

impl ResponseWatch {
    pub(crate) fn begin() -> Self {
        let watch = ResponseWatch(());
        watch.expect_response();
        watch
    }

    /// A request is sent now; earlier ones are answered.
    pub(crate) fn expect_response(&self) {
        let _ = WAITING.try_with(|waiting| waiting.set(Some(Instant::now())));
    }

    /// No response is expected until the next request.
    pub(crate) fn idle(&self) {
        let _ = WAITING.try_with(|waiting| waiting.set(None));
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        self.idle();
    }
}

fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database does not answer"))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;
    use crate::Severity;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn watched(work: impl Future<Output = ()>) -> Result<(), sqlx::Error> {
        watch_responses(work.map(Ok), Err).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_without_response_is_unavailable() {
        let error = statement_timeout(pending::<Result<(), sqlx::Error>>()).await.expect_err("no response");
        assert_eq!(Severity::of(&error), Severity::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unit_of_work_without_response_times_out() {
        let begun = Instant::now();
        let outcome = watched(async {
            sleep(MINUTE).await;
            let _watch = ResponseWatch::begin();
            pending().await
        });
        assert_eq!(Severity::of(&outcome.await.expect_err("no response")), Severity::Unavailable);
        assert_eq!(begun.elapsed(), MINUTE + DATABASE_RESPONSE_TIMEOUT + READ_GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_nested_watch_times_out_alone() {
        let outcome = watched(async {
            let part = watched(async {
                let _watch = ResponseWatch::begin();
                pending().await
            });
            assert!(part.await.is_err());
            sleep(MINUTE).await;
        });
        assert!(outcome.await.is_ok(), "no response is awaited any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_within_the_read_grace_counts() {
        let outcome = watched(async {
            let watch = ResponseWatch::begin();
            sleep(DATABASE_RESPONSE_TIMEOUT + READ_GRACE / 2).await;
            watch.expect_response();
            sleep(DATABASE_RESPONSE_TIMEOUT / 2).await;
        });
        assert!(outcome.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn prompt_responses_and_idle_times_never_time_out() {
        let outcome = watched(async {
            let watch = ResponseWatch::begin();
            for _ in 0..10 {
                sleep(DATABASE_RESPONSE_TIMEOUT - Duration::from_millis(1)).await;
                watch.expect_response();
            }
            watch.idle();
            sleep(MINUTE).await;
            drop(ResponseWatch::begin());
            sleep(MINUTE).await;
        });
        assert!(outcome.await.is_ok());
    }
}
