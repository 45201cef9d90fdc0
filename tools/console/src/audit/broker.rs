//! The broker as the auditor reads it: streams, consumers and messages.

use std::{sync::LazyLock, time::Duration};

use async_nats::{
    ConnectOptions,
    jetstream::{
        self, consumer,
        context::ConsumerInfoErrorKind,
        stream::{self, LastRawMessageErrorKind},
    },
};
use bootstrap::nats::without_credentials;
use contracts::PARTICIPANTS;
use futures_util::future::try_join_all;

use super::{AuditError, Stores};

static STREAMS: LazyLock<Vec<String>> = LazyLock::new(|| PARTICIPANTS.iter().map(|p| p.service.stream()).collect());

/// The stream of each participant, with the database schema of its outbox.
pub(super) fn streams() -> impl Iterator<Item = (&'static str, &'static str)> {
    STREAMS.iter().zip(PARTICIPANTS).map(|(stream, participant)| (stream.as_str(), participant.schema))
}

pub(crate) async fn connect(stores: &Stores) -> Result<jetstream::Context, AuditError> {
    let mut options = ConnectOptions::new()
        .name("console")
        // A user may subscribe only below its own inbox prefix.
        .custom_inbox_prefix(format!("_INBOX_{}", stores.nats_user))
        .connection_timeout(Duration::from_secs(5))
        .request_timeout(Some(Duration::from_secs(5)));
    if let Some(ca) = &stores.nats_ca_file {
        options = options.require_tls(true).add_root_certificates(ca.clone());
    }
    if !stores.nats_user.is_empty() {
        options = options.user_and_password(stores.nats_user.clone(), stores.nats_password.clone());
    }
    let servers: Vec<&str> = stores.nats_url.split(',').map(str::trim).collect();
    let connecting = format!("connecting to {}", without_credentials(&stores.nats_url));
    let client = options.connect(servers.as_slice()).await.map_err(unreadable(connecting))?;
    Ok(jetstream::new(client))
}

pub(super) async fn stream(broker: &jetstream::Context, name: &str) -> Result<stream::Stream, AuditError> {
    broker.get_stream(name).await.map_err(unreadable(format!("stream {name}")))
}

/// When the stream was created, in nanoseconds since 1970: a re-created stream is another epoch.
pub(super) fn epoch(info: &stream::Info) -> i64 {
    i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX)
}

/// The last message of a subject, or 0 when there is none.
pub(super) async fn last_sequence(broker: &jetstream::Context, name: &str, subject: &str) -> Result<u64, AuditError> {
    let subject = if subject.is_empty() { ">" } else { subject };
    match stream(broker, name).await?.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(message.sequence),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
        Err(error) => Err(unreadable(format!("the last message of {subject}"))(error)),
    }
}

/// The services' consumers of a stream. Each is asked by itself: a cluster answers a list only after all have answered, also
/// those of others that a lost server had.
pub(super) async fn consumers(broker: &jetstream::Context, name: &str) -> Result<Vec<consumer::Info>, AuditError> {
    let stream = &stream(broker, name).await?;
    let all = contracts::consumers().into_iter().filter(|consumer| consumer.publisher.stream() == name);
    let infos = all.map(async |consumer| match stream.consumer_info(consumer.step.consumer()).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(format!("consumer {} of stream {name}", consumer.step.consumer()))(error)),
    });
    Ok(try_join_all(infos).await?.into_iter().flatten().collect())
}

/// How often a durable consumer was delivered a message so far, repeats included.
pub(crate) async fn deliveries(broker: &jetstream::Context, name: &str, consumer: &str) -> Result<u64, AuditError> {
    let info = stream(broker, name).await?.consumer_info(consumer).await;
    let info = info.map_err(unreadable(format!("consumer {consumer}")))?;
    Ok(info.delivered.consumer_sequence)
}

/// The error of a failed request for `subject`.
pub(super) fn unreadable<E: Into<async_nats::Error>>(subject: String) -> impl FnOnce(E) -> AuditError {
    move |source| AuditError::Broker { subject, source: source.into() }
}
