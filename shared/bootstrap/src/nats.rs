//! The connection to NATS. It reconnects by itself for as long as the process runs, within a second of the broker's return and
//! with jitter between replicas.

use std::time::Duration;

use async_nats::{Client, ConnectOptions};

use crate::{config::NatsArgs, error::StartError, wait::every_second};

/// The timeout of one attempt to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// A half-open connection is detected after two missed answers.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reconnect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Connects as `service`, retrying once a second with one log line each until the startup limit. Replies arrive on
/// subjects below `_INBOX_<service>`, so that the broker's permissions can keep services from reading each other's.
///
/// # Errors
/// [`StartError::NatsUnreachable`] after the limit.
pub async fn connect(args: &NatsArgs, service: &str) -> Result<Client, StartError> {
    let server = without_credentials(&args.nats_url);
    let limit = args.nats_startup_limit;
    let servers: Vec<&str> = args.nats_url.split(',').map(str::trim).collect();
    every_second(limit, &format!("NATS at {server}"), async || options(args, service).connect(servers.as_slice()).await)
        .await
        .map_err(|source| StartError::NatsUnreachable { server, limit, source })
}

fn options(args: &NatsArgs, service: &str) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .name(service)
        .custom_inbox_prefix(format!("_INBOX_{service}"))
        .connection_timeout(ATTEMPT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_delay);
    if let Some(ca) = &args.nats_ca_file {
        options = options.require_tls(true).add_root_certificates(ca.clone());
    }
    match (&args.nats_user, &args.nats_password) {
        (Some(user), Some(password)) => options.user_and_password(user.clone(), password.expose().to_owned()),
        _ => options,
    }
}

/// Exponential backoff from 50 ms to one second; the actual delay is a random 50 to 100 % of it.
fn reconnect_delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.min(8)).unwrap_or(8);
    let delay = (Duration::from_millis(25) * 2_u32.pow(doublings)).min(MAX_RECONNECT_DELAY);
    delay.mul_f64(rand::random_range(0.5..=1.0))
}

/// Server URLs for logs and errors: without users and passwords.
pub fn without_credentials(urls: &str) -> String {
    let strip = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        _ => url.to_owned(),
    };
    urls.split(',').map(strip).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Secret;

    #[test]
    fn reconnect_delays_grow_to_a_second_and_stay_there() {
        assert!(reconnect_delay(1) <= Duration::from_millis(50));
        for attempts in [6, 100, usize::MAX] {
            let delay = reconnect_delay(attempts);
            assert!(delay >= Duration::from_millis(500) && delay <= MAX_RECONNECT_DELAY);
        }
    }

    #[tokio::test]
    async fn a_broker_that_does_not_appear_is_named_without_its_password() {
        let args = NatsArgs {
            nats_url: "nats://me:hunter2@127.0.0.1:1".to_owned(),
            nats_user: Some("order".to_owned()),
            nats_password: Some(Secret::new("hunter2")),
            nats_ca_file: None,
            nats_startup_limit: Duration::ZERO,
        };
        let text = connect(&args, "order").await.unwrap_err().to_string();
        assert!(text.contains("nats://127.0.0.1:1") && !text.contains("hunter2"), "{text}");
    }
}
