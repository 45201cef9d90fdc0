//! Makes the broker ready: a stream per service, a durable consumer per step. They exist before any service
//! is ready, so no event is published that somebody misses.

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr,
    connection::State,
    jetstream::{
        self, Context, ErrorCode,
        context::{GetStreamError, GetStreamErrorKind},
    },
};
use contracts::Consumer;
use messaging::{
    acknowledged::{self, StreamView},
    consumer_list,
    topology::{self, ConsumerSettings, Ensured, StreamSettings, TopologyError},
};
use saga::Service;
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

/// A half-open connection is noticed after two missed answers: as long as that, nothing that is lost is put back.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// What streams and consumers shall be like.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub stream: StreamSettings,
    pub consumer: ConsumerSettings,
}

/// Where the broker is, and who asks.
#[derive(Clone)]
pub struct Access {
    /// One server or several, separated by commas.
    pub url: String,
    /// `None`: the server asks for no user.
    pub user: Option<String>,
    pub password: String,
}

/// A connection that tells when it is back.
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
    #[error("the broker did not describe stream {stream} and its consumers")]
    Look { stream: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the broker did not remove from stream {stream} what all its consumers have had")]
    Trim { stream: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the broker did not delete the consumer {consumer}")]
    Delete { consumer: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the broker did not delete stream {stream}")]
    DeleteStream { stream: String, source: GetStreamError },
}

/// Something that must exist on the broker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Object {
    Stream(Service),
    Consumer(Consumer),
}

/// Connects, waiting up to `limit` for a broker that is not there yet, with a log line a second.
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
            let user = access.user.clone().unwrap_or_else(|| "nobody".to_owned());
            return Err(Error::Refused { url, user, source: error });
        }
        if waited >= limit {
            return Err(Error::Unreachable { url, waited, source: error });
        }
        tracing::info!(url, "waiting for NATS: {error}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// Hosts and ports, to be named in logs and errors: a URL may hold a password.
fn hosts(urls: &str) -> String {
    let servers = urls.split(',').filter_map(|url| url.trim().parse::<ServerAddr>().ok());
    servers.map(|server| format!("{}:{}", server.host(), server.port())).collect::<Vec<_>>().join(",")
}

/// Everything that must exist, streams before their consumers.
pub fn objects() -> Vec<Object> {
    let streams = contracts::SERVICES.into_iter().map(Object::Stream);
    streams.chain(contracts::consumers().into_iter().map(Object::Consumer)).collect()
}

/// Creates what is missing, changes what is different and deletes what a newer build has left behind. Returns what it had to
/// create or change; nothing the second time.
pub async fn provision(client: &Client, settings: &Settings) -> Result<Vec<(Object, Ensured)>, Error> {
    refuse_old_server(client)?;
    let js = jetstream::new(client.clone());
    let mut done = Vec::new();
    for object in objects() {
        let ensured = ensure(&js, object, settings).await?;
        if ensured != Ensured::Unchanged {
            tracing::info!("{object}: {ensured:?}");
            done.push((object, ensured));
        }
    }
    delete_leftovers(&js).await?;
    Ok(done)
}

/// Deletes the services' durable consumers that are of no step here and that nobody pulls from: a newer build was rolled
/// back. One that is in use is of a replica of another build.
async fn delete_leftovers(js: &Context) -> Result<(), Error> {
    let known: HashSet<String> = contracts::consumers().iter().map(|c| c.step.consumer()).collect();
    let is_ours = |name: &str| contracts::SERVICES.iter().any(|service| name.starts_with(&format!("{service}-")));
    for stream in contracts::SERVICES.map(Service::stream) {
        let not_listed = |source| Error::Look { stream: stream.clone(), source };
        let consumers = consumer_list::of_stream(js, &stream).await.map_err(|error| not_listed(error.into()))?;
        let leftovers = consumers.into_iter().filter(|c| is_ours(&c.name) && !known.contains(&c.name));
        for consumer in leftovers.filter(|consumer| consumer.num_waiting == 0).map(|consumer| consumer.name) {
            tracing::warn!(
                stream,
                consumer,
                "no step of this build has the consumer, and nobody takes from it: deleting it"
            );
            let deleted = js.delete_consumer_from_stream(&consumer, &stream).await;
            deleted.map_err(|source| Error::Delete { consumer, source: source.into() })?;
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

/// Puts back the streams and consumers that are gone, and returns them. What exists is left alone, however it is set;
/// but a consumer that is ahead of its stream, because the stream came back in an older state, would never be given
/// the events that fill the gap, so it is made anew.
pub async fn restore(client: &Client, settings: &Settings) -> Result<Vec<Object>, Error> {
    let js = impatient(client);
    put_back(&js, settings, &look(&js).await?).await
}

/// Removes from streams that are more than half full what all consumers of the saga have acknowledged, oldest first. Returns
/// how many events went. Whoever else reads a stream is on their own.
pub async fn trim(client: &Client) -> Result<u64, Error> {
    let js = impatient(client);
    remove(&js, &look(&js).await?).await
}

async fn tend(client: &Client, settings: &Settings) -> Result<(), Error> {
    let js = impatient(client);
    let streams = look(&js).await?;
    put_back(&js, settings, &streams).await?;
    remove(&js, &streams).await.map(drop)
}

/// An answer that takes longer was lost with its connection.
fn impatient(client: &Client) -> Context {
    let mut js = jetstream::new(client.clone());
    js.set_timeout(Duration::from_secs(2));
    js
}

async fn put_back(js: &Context, settings: &Settings, streams: &[Look]) -> Result<Vec<Object>, Error> {
    let missing: Vec<Object> = streams.iter().flat_map(Look::missing).collect();
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(Object::to_string).collect();
        tracing::warn!(missing = names.join(", "), "the broker has lost streams or consumers: putting them back");
    }
    for object in &missing {
        if let Object::Consumer(c) = object {
            // It is there when it was ahead of its stream.
            let _ = js.delete_consumer_from_stream(c.step.consumer(), c.publisher.stream()).await;
        }
        ensure(js, *object, settings).await?;
    }
    Ok(missing)
}

async fn remove(js: &Context, streams: &[Look]) -> Result<u64, Error> {
    let mut removed = 0;
    for Look { service, view } in streams {
        let consumers = consumers_of(*service).map(|consumer| consumer.step.consumer());
        let Some(before) = view.as_ref().and_then(|view| view.removable(consumers)) else { continue };
        let stream = service.stream();
        let failed = |source: async_nats::Error| Error::Trim { stream: stream.clone(), source };
        let handle = js.get_stream_no_info(&stream).await.map_err(|e| failed(e.into()))?;
        let purged = handle.purge().sequence(before).await.map_err(|e| failed(e.into()))?.purged;
        tracing::debug!(stream, purged, before, "removed what all consumers have had");
        removed += purged;
    }
    Ok(removed)
}

/// Restores and trims once a second and at every reconnect, for ever. Each trouble is logged once, and its end too.
pub async fn keep(connection: &Connection, settings: &Settings) {
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trouble = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = connection.connected.notified() => {}
        }
        let now = match connection.client.connection_state() {
            State::Connected => tend(&connection.client, settings).await.err().map(|error| describe(&error)),
            _ => Some("the connection to NATS is lost".to_owned()),
        };
        match &now {
            Some(what) if now != trouble => tracing::warn!("cannot keep the broker as it should be: {what}"),
            None if trouble.is_some() => tracing::info!("the broker is as it should be again"),
            _ => {}
        }
        trouble = now;
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Stream(service) => write!(f, "stream {}", service.stream()),
            Object::Consumer(c) => write!(f, "consumer {} of stream {}", c.step.consumer(), c.publisher.stream()),
        }
    }
}

fn options(access: &Access, connected: Arc<Notify>) -> ConnectOptions {
    let options = ConnectOptions::new()
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
    match &access.user {
        // Users may listen to answers under their own prefix only.
        Some(user) => options
            .custom_inbox_prefix(format!("_INBOX_{user}"))
            .user_and_password(user.clone(), access.password.clone()),
        None => options,
    }
}

/// A tenth of a second more after each attempt, up to one second.
fn reconnect_delay(attempts: usize) -> Duration {
    Duration::from_millis(100) * u32::try_from(attempts).map_or(10, |attempts| attempts.min(10))
}

fn refuse_old_server(client: &Client) -> Result<(), Error> {
    let version = client.server_info().version;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if release < (2, 9) { Err(Error::TooOld { version }) } else { Ok(()) }
}

async fn ensure(js: &Context, object: Object, settings: &Settings) -> Result<Ensured, TopologyError> {
    match object {
        Object::Stream(service) => topology::ensure_stream(js, service, &settings.stream).await,
        Object::Consumer(c) => match topology::ensure_consumer(js, c.step, c.publisher, &settings.consumer).await {
            Err(error) if error.is_without_store() => {
                tracing::warn!("{}: the stream is made anew", describe(&error));
                make_anew(js, c.publisher, settings).await
            }
            done => done,
        },
    }
}

/// What the stream held is published again by its relay, as far as somebody still needs it.
async fn make_anew(js: &Context, service: Service, settings: &Settings) -> Result<Ensured, TopologyError> {
    let stream = service.stream();
    js.delete_stream(&stream).await.map_err(|source| TopologyError::Refused {
        action: "delete",
        object: Object::Stream(service).to_string(),
        source: Box::new(source),
    })?;
    topology::ensure_stream(js, service, &settings.stream).await?;
    for consumer in consumers_of(service) {
        topology::ensure_consumer(js, consumer.step, service, &settings.consumer).await?;
    }
    Ok(Ensured::Created)
}

/// The stream of a service as it is now; no view: it is not there.
struct Look {
    service: Service,
    view: Option<StreamView>,
}

async fn look(js: &Context) -> Result<Vec<Look>, Error> {
    let mut streams = Vec::new();
    for service in contracts::SERVICES {
        let stream = service.stream();
        let view = acknowledged::read(js, &stream).await.map_err(|source| Error::Look { stream, source })?;
        streams.push(Look { service, view });
    }
    Ok(streams)
}

impl Look {
    fn missing(&self) -> Vec<Object> {
        let stream = self.view.is_none().then_some(Object::Stream(self.service));
        let present = |c: &Consumer| self.view.as_ref().is_some_and(|view| view.has(&c.step.consumer()));
        let consumers = consumers_of(self.service).filter(|consumer| !present(consumer)).map(Object::Consumer);
        stream.into_iter().chain(consumers).collect()
    }
}

/// The consumers of the saga that read what this service publishes.
fn consumers_of(service: Service) -> impl Iterator<Item = Consumer> {
    contracts::consumers().into_iter().filter(move |consumer| consumer.publisher == service)
}

fn is_not_found(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// An error with its causes, in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
