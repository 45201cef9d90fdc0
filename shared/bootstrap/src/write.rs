//! Writes that outlive their request. axum drops a handler when its client disconnects or the request times out,
//! and sqlx may leave a transaction open when `begin` is dropped, so a write runs in a task of its own.

use std::{future::Future, time::Duration};

use tokio::time::timeout;
use tracing::Instrument as _;

use crate::http::Problem;

/// How long a write may take: the replay of a dead letter runs a whole step, which has a minute, and writes its outcome down.
/// What takes longer waits for a server that is not there any more.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a write to its end even when the caller is dropped, inside the caller's span, and answers with its result.
/// A write in progress holds its connection, so closing the pools at shutdown waits for it.
///
/// # Errors
/// The write's own failure as a [`Problem`]; 500 when it panicked, 503 when the database does not answer for two minutes.
pub async fn detached<T, E, F>(write: F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "closing the pools waits for its connection")]
    let task = tokio::spawn(timeout(LIMIT, write).in_current_span());
    match task.await {
        Ok(Ok(result)) => result.map_err(Into::into),
        Ok(Err(_)) => Err(Problem::unavailable("The database does not answer.", 1)),
        Err(failure) => Err(Problem::internal(&failure)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use axum::http::StatusCode;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_goes_on_when_its_caller_is_dropped() {
        let (start, started) = oneshot::channel::<()>();
        let (finish, finished) = oneshot::channel();
        let caller = tokio::spawn(detached(async move {
            started.await.ok();
            finish.send("written").ok();
            Ok::<_, Problem>(())
        }));
        tokio::task::yield_now().await;
        caller.abort();
        caller.await.unwrap_err();
        start.send(()).unwrap();
        assert_eq!(finished.await.unwrap(), "written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_the_database_never_answers_comes_to_an_end() {
        let answer = detached(std::future::pending::<Result<(), Problem>>()).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn a_panicking_write_is_an_internal_error() {
        let answer = detached(async { panic!("boom") as Result<(), Problem> }).await;
        assert_eq!(answer.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
