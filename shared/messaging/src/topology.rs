//! What must exist on the broker: one stream per publishing service, one durable consumer per step
//! and publisher. Servers drop settings that they do not know without a word, so whatever the server
//! says it keeps is compared with what was asked for, and a difference is an error.

use std::{fmt, time::Duration};

use async_nats::jetstream::{
    Context, ErrorCode,
    consumer::{self, AckPolicy, DeliverPolicy, ReplayPolicy, pull},
    context::{GetStreamError, GetStreamErrorKind},
    stream::{self, ConsumerError, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType},
};
use saga::{Service, Step};

/// Limits of a service's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// Half of it is for events that all consumers have acknowledged: `provision keep` removes the oldest of more. A stream
    /// that is full of others refuses new ones, which wait in the outbox.
    pub max_bytes: i64,
    /// How long events stay at most, whoever has had them. The inbox must remember at least as long.
    pub max_age: Duration,
    /// 1 to 5; more than 1 needs a cluster.
    pub replicas: usize,
    /// How long the broker remembers event ids. Saves duplicates, guarantees nothing: the inbox does.
    pub duplicate_window: Duration,
}

impl Default for StreamSettings {
    fn default() -> Self {
        StreamSettings {
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(3 * 24 * 60 * 60),
            replicas: 1,
            duplicate_window: Duration::from_secs(120),
        }
    }
}

/// Limits of a step's durable consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// How long a delivery may stay unanswered before the broker delivers the message again.
    pub ack_wait: Duration,
    /// How many deliveries, over all replicas of the service, may be unanswered at a time.
    pub max_ack_pending: i64,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        ConsumerSettings { ack_wait: Duration::from_millis(2_500), max_ack_pending: 4096 }
    }
}

/// What it took to make the broker right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    Unchanged,
    Created,
    Updated,
}

#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    #[error("the step {step} consumes no event of {publisher}")]
    NotConsumed { step: &'static str, publisher: Service },
    #[error("the broker did not {action} {object}")]
    Refused {
        action: &'static str,
        /// `stream ORDER`, or `consumer inventory-reserve_stock of stream ORDER`.
        object: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the broker keeps another {object} than it was asked for: {differences}")]
    Differs { object: String, differences: Differences },
}

impl TopologyError {
    /// Whether the server has no place to store a consumer, as when it cannot read what a power cut has left of one with its
    /// name. Nobody can delete that but with the stream.
    pub fn is_without_store(&self) -> bool {
        let TopologyError::Refused { source, .. } = self else { return false };
        let Some(ConsumerErrorKind::JetStream(answer)) = source.downcast_ref::<ConsumerError>().map(|e| e.kind())
        else {
            return false;
        };
        // Its code depends on the server's version.
        answer.to_string().starts_with("error creating store for consumer")
    }
}

/// The stream that carries everything `service` publishes, and nothing else.
pub fn stream_config(service: Service, settings: &StreamSettings) -> stream::Config {
    stream::Config {
        name: service.stream(),
        subjects: vec![format!("events.{service}.>")],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_bytes: settings.max_bytes,
        max_age: settings.max_age,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        num_replicas: settings.replicas,
        duplicate_window: settings.duplicate_window,
        allow_direct: true,
        ..Default::default()
    }
}

/// The durable pull consumer of `step` in the stream of `publisher`. It begins with the stream's
/// first message, and delivers without limit: the application decides what is a dead letter.
pub fn consumer_config(
    step: &Step,
    publisher: Service,
    settings: &ConsumerSettings,
) -> Result<pull::Config, TopologyError> {
    let event = step
        .consumes()
        .filter(|event| event.publishers.contains(&publisher))
        .ok_or(TopologyError::NotConsumed { step: step.name, publisher })?;
    Ok(pull::Config {
        durable_name: Some(step.consumer()),
        // One filter only: servers before 2.10 ignore a list of filters and deliver everything.
        filter_subject: event.subject(publisher),
        deliver_policy: DeliverPolicy::All,
        replay_policy: ReplayPolicy::Instant,
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        max_deliver: -1,
        max_ack_pending: settings.max_ack_pending,
        ..Default::default()
    })
}

/// Creates the stream of `service`, or changes it to what it should be. Harmless to repeat.
pub async fn ensure_stream(
    js: &Context,
    service: Service,
    settings: &StreamSettings,
) -> Result<Ensured, TopologyError> {
    let wanted = stream_config(service, settings);
    let object = format!("stream {}", wanted.name);
    let mut actual = read_stream(js, &wanted.name).await.map_err(refused("show", &object))?;
    if actual.as_ref().is_some_and(|actual| actual.deny_purge) {
        // Made so by an earlier version, and no server takes that back: its relay publishes again what is still needed.
        tracing::warn!("{object} is made anew, because nothing could ever be removed from it");
        js.delete_stream(&wanted.name).await.map_err(refused("delete", &object))?;
        actual = None;
    }
    let (kept, ensured) = match actual {
        Some(actual) if stream_differences(&wanted, &actual).is_empty() => return Ok(Ensured::Unchanged),
        Some(_) => {
            let updated = js.update_stream(&wanted).await.map_err(refused("change", &object))?;
            (updated.config, Ensured::Updated)
        }
        None => {
            let created = js.create_stream(wanted.clone()).await.map_err(refused("create", &object))?;
            (created.cached_info().config.clone(), Ensured::Created)
        }
    };
    same_or_error(object, stream_differences(&wanted, &kept), ensured)
}

/// Creates the consumer of `step` in the stream of `publisher`, or changes it to what it should be.
/// Harmless to repeat: what is acknowledged stays acknowledged.
pub async fn ensure_consumer(
    js: &Context,
    step: &Step,
    publisher: Service,
    settings: &ConsumerSettings,
) -> Result<Ensured, TopologyError> {
    let wanted = consumer_config(step, publisher, settings)?;
    let (stream, consumer) = (publisher.stream(), step.consumer());
    let object = format!("consumer {consumer} of stream {stream}");
    let (action, ensured) = match read_consumer(js, &stream, &consumer).await.map_err(refused("show", &object))? {
        Some(actual) if consumer_differences(&wanted, &actual).is_empty() => return Ok(Ensured::Unchanged),
        Some(_) => ("change", Ensured::Updated),
        None => ("create", Ensured::Created),
    };
    // One call for both: a consumer of that name is changed, and keeps its place in the stream.
    let write = async || js.create_consumer_on_stream(wanted.clone(), &stream).await.map_err(refused(action, &object));
    let mut written = write().await?;
    if ensured == Ensured::Created && written.cached_info().delivered.consumer_sequence > 0 {
        // The server had lost what the consumer is, but not its place, which may be that of events it has lost as well.
        // What it knows again it deletes whole.
        js.delete_consumer_from_stream(&consumer, &stream).await.map_err(refused("delete", &object))?;
        written = write().await?;
    }
    same_or_error(object, consumer_differences(&wanted, &written.cached_info().config), ensured)
}

/// Settings that are not as they should be, for the reader of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences(Vec<String>);

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn compare<T: PartialEq + fmt::Debug>(&mut self, setting: &str, wanted: T, actual: T) {
        if wanted != actual {
            self.0.push(format!("{setting} is {actual:?}, wanted {wanted:?}"));
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

fn stream_differences(wanted: &stream::Config, actual: &stream::Config) -> Differences {
    let mut found = Differences::default();
    found.compare("subjects", &wanted.subjects, &actual.subjects);
    found.compare("storage", wanted.storage, actual.storage);
    found.compare("retention", wanted.retention, actual.retention);
    found.compare("discard", wanted.discard, actual.discard);
    found.compare("max_bytes", wanted.max_bytes, actual.max_bytes);
    found.compare("max_age", wanted.max_age, actual.max_age);
    found.compare("max_messages", wanted.max_messages, actual.max_messages);
    found.compare("max_messages_per_subject", wanted.max_messages_per_subject, actual.max_messages_per_subject);
    found.compare("max_consumers", wanted.max_consumers, actual.max_consumers);
    found.compare("replicas", wanted.num_replicas, actual.num_replicas);
    found.compare("duplicate_window", wanted.duplicate_window, actual.duplicate_window);
    found.compare("allow_direct", wanted.allow_direct, actual.allow_direct);
    found.compare("deny_purge", wanted.deny_purge, actual.deny_purge);
    found.compare("no_ack", wanted.no_ack, actual.no_ack);
    found.compare("sealed", wanted.sealed, actual.sealed);
    found
}

fn consumer_differences(wanted: &pull::Config, actual: &consumer::Config) -> Differences {
    let mut found = Differences::default();
    found.compare("deliver_subject", &None, &actual.deliver_subject);
    found.compare("durable_name", &wanted.durable_name, &actual.durable_name);
    found.compare("filter_subject", &wanted.filter_subject, &actual.filter_subject);
    found.compare("filter_subjects", &wanted.filter_subjects, &actual.filter_subjects);
    found.compare("deliver_policy", wanted.deliver_policy, actual.deliver_policy);
    found.compare("replay_policy", wanted.replay_policy, actual.replay_policy);
    found.compare("ack_policy", wanted.ack_policy, actual.ack_policy);
    found.compare("ack_wait", wanted.ack_wait, actual.ack_wait);
    found.compare("max_deliver", wanted.max_deliver, actual.max_deliver);
    found.compare("max_ack_pending", wanted.max_ack_pending, actual.max_ack_pending);
    found.compare("headers_only", wanted.headers_only, actual.headers_only);
    found.compare("inactive_threshold", wanted.inactive_threshold, actual.inactive_threshold);
    found.compare("backoff", &wanted.backoff, &actual.backoff);
    found
}

fn same_or_error(object: String, differences: Differences, ensured: Ensured) -> Result<Ensured, TopologyError> {
    if differences.is_empty() { Ok(ensured) } else { Err(TopologyError::Differs { object, differences }) }
}

fn refused<E>(action: &'static str, object: &str) -> impl FnOnce(E) -> TopologyError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| TopologyError::Refused { action, object: object.to_owned(), source: Box::new(error) }
}

async fn read_stream(js: &Context, stream: &str) -> Result<Option<stream::Config>, GetStreamError> {
    match js.get_stream(stream).await {
        Ok(found) => Ok(Some(found.cached_info().config.clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            _ => Err(error),
        },
    }
}

async fn read_consumer(js: &Context, stream: &str, consumer: &str) -> Result<Option<consumer::Config>, ConsumerError> {
    match js.get_consumer_from_stream::<pull::Config, _, _>(consumer, stream).await {
        Ok(found) => Ok(Some(found.cached_info().config.clone())),
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::CONSUMER_NOT_FOUND => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use saga::{Breaker, EventType, Kind, Retry, Trigger};

    use super::*;

    const BAKERY: Service = Service("bakery");
    const CAFE: Service = Service("cafe");
    const BREAD_BAKED: EventType =
        EventType { name: "BreadBaked", version: 1, aggregate: "bread", publishers: &[BAKERY], refusal: false };
    const SERVE_BREAD: Step = Step {
        number: 1,
        name: "serve_bread",
        service: Some(CAFE),
        on: Trigger::Event(BREAD_BAKED),
        emits: &[],
        kind: Kind::Retriable,
        retry: Retry::DEFAULT,
        breaker: Breaker::DEFAULT,
        time_limit: Step::TIME_LIMIT,
    };

    #[test]
    fn a_stream_carries_what_its_service_publishes_and_a_consumer_what_its_step_waits_for() {
        let stream = stream_config(BAKERY, &StreamSettings::default());
        assert_eq!((stream.name.as_str(), stream.subjects), ("BAKERY", vec!["events.bakery.>".to_owned()]));
        let consumer = consumer_config(&SERVE_BREAD, BAKERY, &ConsumerSettings::default()).unwrap();
        assert_eq!(consumer.durable_name.as_deref(), Some("cafe-serve_bread"));
        assert_eq!(consumer.filter_subject, "events.bakery.BreadBaked");
    }

    #[test]
    fn a_step_has_no_consumer_where_its_event_is_not_published() {
        let elsewhere = consumer_config(&SERVE_BREAD, CAFE, &ConsumerSettings::default());
        assert!(elsewhere.unwrap_err().to_string().contains("serve_bread"));
        let request = Step { on: Trigger::Http, ..SERVE_BREAD };
        assert!(consumer_config(&request, BAKERY, &ConsumerSettings::default()).is_err());
    }

    #[test]
    fn a_setting_that_the_server_dropped_is_named_with_both_values() {
        let wanted = stream_config(BAKERY, &StreamSettings::default());
        assert!(stream_differences(&wanted, &wanted.clone()).is_empty());
        let kept = stream::Config { max_bytes: -1, discard: DiscardPolicy::Old, ..wanted.clone() };
        let found = stream_differences(&wanted, &kept).to_string();
        assert_eq!(found, "discard is Old, wanted New; max_bytes is -1, wanted 1073741824");
    }
}
