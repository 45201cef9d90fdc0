//! Provisions the broker: a stream per service, a durable consumer per step. They exist before any service is ready, so every
//! consumer receives every event.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr,
    jetstream::{
        self, Context, ErrorCode,
        context::{GetStreamError, GetStreamErrorKind},
    },
};
use messaging::topology::{Ensured, Object, Topology, TopologyError};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// A half-open connection is detected after two missed answers; until then lost streams are not restored.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The address of the broker, and the credentials.
#[derive(Clone)]
pub struct Access {
    /// One server or several, separated by commas.
    pub url: String,
    /// `None`: the server has no users.
    pub user: Option<String>,
    pub password: String,
    /// The only CA whose certificate the server may have. `None`: the connection is encrypted only where the server demands it.
    pub ca_file: Option<PathBuf>,
}

/// A connection with a notification at each reconnect.
pub struct Connection {
    pub client: Client,
    connected: Arc<Notify>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("NATS at {url} did not answer within {waited:?}")]
    Unreachable { url: String, waited: Duration, source: ConnectError },
    #[error("cannot connect to NATS at {url} as {user}")]
    Refused { url: String, user: String, source: ConnectError },
    #[error("nats-server {version} is too old: 2.9 or newer is needed")]
    TooOld { version: String },
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error("the broker did not delete stream {stream}")]
    DeleteStream { stream: String, source: GetStreamError },
    #[error("the broker did not describe stream {stream}")]
    DescribeStream { stream: String, source: GetStreamError },
}

/// Connects, waiting up to `limit` for a broker that is not running yet, with a log line per second.
pub async fn connect(access: &Access, limit: Duration) -> Result<Connection, Error> {
    let started = Instant::now();
    let connected = Arc::new(Notify::new());
    loop {
        let servers: Vec<&str> = access.url.split(',').map(str::trim).collect();
        let error = match options(access, Arc::clone(&connected)).connect(servers).await {
            Ok(client) => return Ok(Connection { client, connected }),
            Err(error) => error,
        };
        let (url, waited) = (hosts(&access.url), started.elapsed());
        if !matches!(error.kind(), ConnectErrorKind::Io | ConnectErrorKind::TimedOut | ConnectErrorKind::Dns) {
            let user = access.user.clone().unwrap_or_else(|| "anonymous".to_owned());
            return Err(Error::Refused { url, user, source: error });
        }
        if waited >= limit {
            return Err(Error::Unreachable { url, waited, source: error });
        }
        tracing::info!(url, "waiting for NATS: {error}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// Hosts and ports for logs and errors, without the passwords of the URLs.
fn hosts(urls: &str) -> String {
    let servers = urls.split(',').filter_map(|url| url.trim().parse::<ServerAddr>().ok());
    servers.map(|server| format!("{}:{}", server.host(), server.port())).collect::<Vec<_>>().join(",")
}

/// The suite's streams and consumers, with default settings.
pub fn topology() -> Topology {
    Topology::of(contracts::SERVICES, contracts::steps())
}

/// Creates missing objects, changes different ones and deletes the consumers that a newer build has left. Returns what it created
/// or changed; idempotent.
pub async fn provision(client: &Client, topology: &Topology) -> Result<Vec<(Object, Ensured)>, Error> {
    refuse_old_server(client)?;
    delete_sealed(&jetstream::new(client.clone())).await?;
    Ok(topology.ensure(client).await?)
}

/// An earlier version created streams with `deny_purge`, which cannot be unset, so they are recreated. Their relays publish again
/// what is still needed.
async fn delete_sealed(js: &Context) -> Result<(), Error> {
    for service in contracts::SERVICES {
        let stream = service.stream();
        let is_ours = |config: &jetstream::stream::Config| config.subjects == [format!("events.{service}.>")];
        match js.get_stream(&stream).await {
            Ok(found) if found.cached_info().config.deny_purge && is_ours(&found.cached_info().config) => {
                tracing::warn!(stream, "recreated, because it cannot be purged");
                js.delete_stream(&stream).await.map_err(|source| Error::DeleteStream { stream, source })?;
            }
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(source) => return Err(Error::DescribeStream { stream, source }),
        }
    }
    Ok(())
}

/// Deletes all streams, and their consumers with them.
pub async fn delete_streams(client: &Client) -> Result<(), Error> {
    let js = jetstream::new(client.clone());
    for service in contracts::SERVICES {
        let stream = service.stream();
        match js.delete_stream(&stream).await {
            Ok(_) => tracing::warn!(stream, "deleted"),
            Err(error) if is_not_found(&error) => {}
            Err(source) => return Err(Error::DeleteStream { stream, source }),
        }
    }
    Ok(())
}

/// Restores and trims streams once a second and at every reconnect, for ever.
pub async fn keep(connection: &Connection, topology: &Topology) {
    topology.run(&connection.client, &connection.connected).await;
}

fn options(access: &Access, connected: Arc<Notify>) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .name("provision")
        .connection_timeout(Duration::from_secs(5))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            if event == Event::Connected {
                connected.notify_one();
            }
            std::future::ready(())
        });
    if let Some(ca) = &access.ca_file {
        options = options.require_tls(true).add_root_certificates(ca.clone());
    }
    match &access.user {
        // Users may subscribe to answers under their own prefix only.
        Some(user) => options
            .custom_inbox_prefix(format!("_INBOX_{user}"))
            .user_and_password(user.clone(), access.password.clone()),
        None => options,
    }
}

/// 100 ms more after each attempt, at most one second.
fn reconnect_delay(attempts: usize) -> Duration {
    Duration::from_millis(100) * u32::try_from(attempts).map_or(10, |attempts| attempts.min(10))
}

fn refuse_old_server(client: &Client) -> Result<(), Error> {
    let version = client.server_info().version;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if release < (2, 9) { Err(Error::TooOld { version }) } else { Ok(()) }
}

fn is_not_found(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
