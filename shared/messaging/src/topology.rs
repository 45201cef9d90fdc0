//! The streams and consumers that must exist on the broker: one stream per publishing service, one durable consumer per step and
//! publisher. Servers silently drop settings that they do not know, so the stored settings are compared with the wanted ones,
//! and a difference is an error.

mod reconciler;

use std::time::Duration;

use async_nats::jetstream::{
    Context, ErrorCode,
    consumer::{self, AckPolicy, DeliverPolicy, ReplayPolicy, pull},
    context::{GetStreamError, GetStreamErrorKind},
    stream::{self, ConsumerError, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType},
};
use saga::{Service, Step};

pub use reconciler::{Object, Topology};

/// Limits of a service's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// Acknowledged events may fill half of it: [`Topology::trim`] removes the oldest beyond that. A stream that is full of
    /// unacknowledged events refuses new ones, which wait in the outbox.
    pub max_bytes: i64,
    /// The maximum age of events, acknowledged or not. Inbox rows must be kept at least as long.
    pub max_age: Duration,
    /// 1 to 5; more than 1 needs a cluster.
    pub replicas: usize,
    /// How long the broker remembers message ids. Deduplication here is an optimisation; the guarantee is the inbox.
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
    /// How long a delivery may stay unacknowledged before the broker redelivers the message.
    pub ack_wait: Duration,
    /// The most unacknowledged deliveries of all replicas of the service together.
    pub max_ack_pending: i64,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        ConsumerSettings { ack_wait: Duration::from_millis(2_500), max_ack_pending: 4096 }
    }
}

/// The change that was necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    Unchanged,
    Created,
    Updated,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    #[error("the broker stores another {object} than requested: {differences}")]
    Differs { object: String, differences: String },
    #[error("the {object} belongs to another program: its subjects are {subjects:?}")]
    Foreign { object: String, subjects: Vec<String> },
}

impl TopologyError {
    /// Whether the server cannot create the store of a consumer, for example because it cannot read the files that a power cut
    /// has left of a consumer with that name. They can be deleted only together with the stream.
    fn is_without_store(&self) -> bool {
        let TopologyError::Refused { source, .. } = self else { return false };
        let Some(ConsumerErrorKind::JetStream(answer)) = source.downcast_ref::<ConsumerError>().map(|e| e.kind())
        else {
            return false;
        };
        // The error code depends on the server's version.
        answer.to_string().starts_with("error creating store for consumer")
    }
}

/// The stream of exactly the events that `service` publishes.
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

/// The durable pull consumer of `step` on the stream of `publisher`. It starts with the stream's first message and redelivers
/// without limit: the application decides when an event becomes a dead letter.
fn consumer_config(
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
        // A single filter: servers before 2.10 ignore a list of filters and deliver all messages.
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

/// Creates the stream of `service`, or updates it to these settings. Idempotent.
///
/// # Errors
/// [`TopologyError::Foreign`] when a stream of that name has other subjects: it is not changed. Otherwise the broker's error.
pub async fn ensure_stream(
    js: &Context,
    service: Service,
    settings: &StreamSettings,
) -> Result<Ensured, TopologyError> {
    let wanted = stream_config(service, settings);
    let object = format!("stream {}", wanted.name);
    let found = find_stream(js, &wanted.name).await.map_err(refused("show", &object))?;
    let (kept, ensured) = match found.map(|stream| stream.cached_info().config.clone()) {
        Some(actual) if actual.subjects != wanted.subjects => {
            return Err(TopologyError::Foreign { object, subjects: actual.subjects });
        }
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

/// Creates the consumer of `step` on the stream of `publisher`, or updates it to these settings. Idempotent: acknowledgements are
/// kept.
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
    // The same call creates and updates; an existing consumer keeps its position in the stream.
    let write = async || js.create_consumer_on_stream(wanted.clone(), &stream).await.map_err(refused(action, &object));
    let mut written = write().await?;
    if ensured == Ensured::Created && written.cached_info().delivered.consumer_sequence > 0 {
        // The server had lost the consumer's settings but not its position, which may lie beyond events that are lost, too. A
        // known consumer is deleted with its position.
        js.delete_consumer_from_stream(&consumer, &stream).await.map_err(refused("delete", &object))?;
        written = write().await?;
    }
    same_or_error(object, consumer_differences(&wanted, &written.cached_info().config), ensured)
}

/// The settings that differ, as text for an error.
macro_rules! differences {
    ($wanted:ident, $actual:ident: $($setting:ident)*) => {{
        let mut found = Vec::new();
        $(if $wanted.$setting != $actual.$setting {
            let setting = stringify!($setting);
            found.push(format!("{setting} is {:?}, wanted {:?}", $actual.$setting, $wanted.$setting));
        })*
        found
    }};
}

fn stream_differences(wanted: &stream::Config, actual: &stream::Config) -> Vec<String> {
    differences!(wanted, actual:
        subjects storage retention discard max_bytes max_age max_messages max_messages_per_subject max_consumers
        num_replicas duplicate_window allow_direct deny_purge no_ack sealed)
}

fn consumer_differences(wanted: &pull::Config, actual: &consumer::Config) -> Vec<String> {
    let mut found = differences!(wanted, actual:
        durable_name filter_subject filter_subjects deliver_policy replay_policy ack_policy ack_wait max_deliver
        max_ack_pending headers_only inactive_threshold backoff);
    if let Some(subject) = &actual.deliver_subject {
        found.push(format!("deliver_subject is {subject:?}, wanted none"));
    }
    found
}

fn same_or_error(object: String, differences: Vec<String>, ensured: Ensured) -> Result<Ensured, TopologyError> {
    if differences.is_empty() {
        return Ok(ensured);
    }
    Err(TopologyError::Differs { object, differences: differences.join("; ") })
}

fn refused<E>(action: &'static str, object: &str) -> impl FnOnce(E) -> TopologyError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| TopologyError::Refused { action, object: object.to_owned(), source: Box::new(error) }
}

pub(crate) async fn find_stream(js: &Context, name: &str) -> Result<Option<stream::Stream>, GetStreamError> {
    match js.get_stream(name).await {
        Ok(found) => Ok(Some(found)),
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

    use saga::{Kind, StepOn};

    use super::*;

    const BAKERY: Service = Service("bakery");
    const CAFE: Service = Service("cafe");
    saga::event!(BreadBaked { loaf: u32 }, "bread" by [BAKERY]);
    static SERVE_BREAD: StepOn<BreadBaked> = StepOn::new(1, "serve_bread", CAFE, &[], Kind::Retriable);

    #[test]
    fn names_and_subjects_follow_service_and_step() {
        let stream = stream_config(BAKERY, &StreamSettings::default());
        assert_eq!((stream.name.as_str(), stream.subjects), ("BAKERY", vec!["events.bakery.>".to_owned()]));
        let consumer = consumer_config(&SERVE_BREAD, BAKERY, &ConsumerSettings::default()).unwrap();
        assert_eq!(consumer.durable_name.as_deref(), Some("cafe-serve_bread"));
        assert_eq!(consumer.filter_subject, "events.bakery.BreadBaked");
    }

    #[test]
    fn a_step_has_no_consumer_for_other_publishers() {
        let elsewhere = consumer_config(&SERVE_BREAD, CAFE, &ConsumerSettings::default());
        assert!(elsewhere.unwrap_err().to_string().contains("serve_bread"));
        let request = Step::on_request(1, "serve_bread", CAFE, &[], Kind::Retriable);
        assert!(consumer_config(&request, BAKERY, &ConsumerSettings::default()).is_err());
    }

    #[test]
    fn a_dropped_setting_is_reported_with_both_values() {
        let wanted = stream_config(BAKERY, &StreamSettings::default());
        assert!(stream_differences(&wanted, &wanted.clone()).is_empty());
        let kept = stream::Config { max_bytes: -1, discard: DiscardPolicy::Old, ..wanted.clone() };
        let found = stream_differences(&wanted, &kept);
        assert_eq!(found, ["discard is Old, wanted New", "max_bytes is -1, wanted 1073741824"]);
    }
}
