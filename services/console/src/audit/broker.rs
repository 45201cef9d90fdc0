//! The broker, read as the auditor: the streams' state, their consumers' lag, and their messages.

use std::time::Duration;

use async_nats::{
    ConnectOptions,
    jetstream::{self, stream},
};
use futures_util::TryStreamExt;

use super::{AuditError, Stores};

/// The stream of each publishing service, with the database schema of its outbox.
pub(super) const STREAMS: [(&str, &str); 3] = [("ORDER", "orders"), ("INVENTORY", "inventory"), ("PAYMENT", "payment")];

/// What one stream and its consumers look like now.
pub(super) struct StreamState {
    pub(super) name: &'static str,
    pub(super) last_sequence: u64,
    /// Consumers that have not had everything, with how much is missing.
    pub(super) behind: Vec<(String, u64)>,
}

pub(crate) async fn connect(stores: &Stores) -> Result<jetstream::Context, AuditError> {
    let mut options = ConnectOptions::new()
        .name("console")
        // Each user may only listen below its own prefix.
        .custom_inbox_prefix(format!("_INBOX_{}", stores.nats_user))
        .connection_timeout(Duration::from_secs(5))
        .request_timeout(Some(Duration::from_secs(5)));
    if !stores.nats_user.is_empty() {
        options = options.user_and_password(stores.nats_user.clone(), stores.nats_password.clone());
    }
    let servers: Vec<&str> = stores.nats_url.split(',').map(str::trim).collect();
    let client =
        options.connect(servers.as_slice()).await.map_err(unreadable(format!("connecting to {}", stores.nats_url)))?;
    Ok(jetstream::new(client))
}

/// A stream with its configuration and state as of now.
pub(super) async fn stream(broker: &jetstream::Context, name: &str) -> Result<stream::Stream, AuditError> {
    broker.get_stream(name).await.map_err(unreadable(format!("stream {name}")))
}

/// When the stream was created, in nanoseconds since 1970: a re-created stream is another epoch.
pub(super) fn epoch(info: &stream::Info) -> i64 {
    i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX)
}

/// The state of all streams, and which of their durable consumers are behind.
pub(super) async fn states(broker: &jetstream::Context) -> Result<Vec<StreamState>, AuditError> {
    let mut states = Vec::new();
    for (name, _) in STREAMS {
        let stream = stream(broker, name).await?;
        let mut behind = Vec::new();
        let mut consumers = stream.consumers();
        let asked = || format!("the consumers of stream {name}");
        while let Some(consumer) = consumers.try_next().await.map_err(unreadable(asked()))? {
            let missing = consumer.num_pending + consumer.num_ack_pending as u64;
            // Whoever else looks at the streams, such as another audit, does not count.
            if consumer.config.durable_name.is_some() && missing > 0 {
                behind.push((consumer.name, missing));
            }
        }
        let last_sequence = stream.cached_info().state.last_sequence;
        states.push(StreamState { name, last_sequence, behind });
    }
    Ok(states)
}

/// How often a durable consumer was delivered a message so far, repeats included.
pub(crate) async fn deliveries(broker: &jetstream::Context, name: &str, consumer: &str) -> Result<u64, AuditError> {
    let asked = || format!("consumer {consumer}");
    let stream = stream(broker, name).await?;
    let mut consumers = stream.consumers();
    while let Some(found) = consumers.try_next().await.map_err(unreadable(asked()))? {
        if found.name == consumer {
            return Ok(found.delivered.consumer_sequence);
        }
    }
    Err(unreadable(asked())("there is none"))
}

/// Says what was asked when the broker did not answer.
pub(super) fn unreadable<E: Into<async_nats::Error>>(asked: String) -> impl FnOnce(E) -> AuditError {
    move |source| AuditError::Broker { asked, source: source.into() }
}
