//! Waiting for a dependency that is still starting.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::http::chain;

/// Tries once a second until success or until `limit` is over, with one log line per failure. Every failure counts as
/// transient: while a suite starts, even a missing role or database may still be created.
pub(crate) async fn every_second<T, E>(
    limit: Duration,
    target: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E>
where
    E: std::error::Error + 'static,
{
    let deadline = Instant::now() + limit;
    loop {
        let next = Instant::now() + Duration::from_secs(1);
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if next >= deadline => return Err(error),
            Err(error) => tracing::warn!("waiting for {target}: {}", chain(&error)),
        }
        sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_tries_once_a_second_until_the_limit() {
        let mut attempts = 0;
        let result: Result<(), std::io::Error> = every_second(Duration::from_secs(5), "nothing", async || {
            attempts += 1;
            Err(std::io::ErrorKind::ConnectionRefused.into())
        })
        .await;
        assert!(result.is_err());
        assert_eq!(attempts, 5);
    }
}
