//! Events: named, versioned facts, each with declared publishers.

use serde::{Serialize, de::DeserializeOwned};
use time::OffsetDateTime;
use uuid::Uuid;

/// A service that participates in sagas, by the name used in subjects, schemas and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service(pub &'static str);

impl Service {
    /// The stream that carries the events of this service, and no others.
    pub fn stream(self) -> String {
        self.0.to_uppercase()
    }

    /// The subject on which replicas that wrote events wake the replica whose relay is active (core NATS, not stored).
    pub fn nudge_subject(self) -> String {
        format!("nudge.{}", self.0)
    }

    /// The prefix of the subjects on which the service's replicas query each other (core NATS, not stored).
    pub fn replicas_subject(self) -> String {
        format!("replicas.{}", self.0)
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// A type of event: its name (past tense), the version of its body, and its publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventType {
    pub name: &'static str,
    pub version: u16,
    /// The type of its aggregate; the events of one aggregate keep their order.
    pub aggregate: &'static str,
    pub publishers: &'static [Service],
    /// It is a refusal for a business reason: a valid outcome, not a failure of its publisher.
    pub refusal: bool,
}

impl EventType {
    /// The name on the wire, with its version: `OrderCreated.v1`.
    pub fn wire_name(&self) -> String {
        format!("{}.v{}", self.name, self.version)
    }

    /// The subject under which `publisher` publishes it: `events.order.OrderCreated`.
    pub fn subject(&self, publisher: Service) -> String {
        format!("events.{publisher}.{}", self.name)
    }
}

/// A typed event body. Bodies change by addition only; any other change is a new version (docs/upgrades.md).
pub trait Event: Serialize + DeserializeOwned + Send + Sync + 'static {
    const TYPE: EventType;

    /// The id of the aggregate that the event is about.
    fn aggregate_id(&self) -> String;

    /// Reads a body of this version; none when the version is unknown. An event that has had other versions converts the bodies
    /// that may still be delivered to its own version here, and nowhere else.
    fn read(version: u16, body: &[u8]) -> Option<serde_json::Result<Self>> {
        (version == Self::TYPE.version).then(|| serde_json::from_slice(body))
    }
}

/// A refusal: only such an event can refuse a step.
pub trait Refusal: Event {
    /// The reason, as the journal shows it.
    fn reason(&self) -> String;
}

/// A saga whose deadline has passed.
#[derive(Debug, Clone)]
pub struct Expired {
    pub saga_id: Uuid,
    /// The id of the business object that the saga is about.
    pub business_key: Uuid,
    pub deadline: OffsetDateTime,
    /// The last step that was taken.
    pub current_step: u8,
    pub started_at: OffsetDateTime,
    /// Milliseconds from its start until now, by the database's clock.
    pub elapsed_ms: i64,
    /// The wire name of its last event; none if that was committed while the sagas were being read.
    pub last_event_type: Option<String>,
    /// The service that has detected it.
    pub detected_by: String,
}

/// The event that a saga has timed out; the first service that detects it publishes it.
pub trait Timeout: Event {
    fn of(saga: Expired) -> Self;
}

/// Defines an event of version 1, whose first field is the id of its aggregate:
///
/// ```
/// const BELL: saga::Service = saga::Service("bell");
/// saga::event!(Rang { door: u32, at: String }, "door" by [BELL]);
/// saga::event!(Ignored { door: u32 }, "door" by [BELL], refuses "the house is empty");
/// ```
///
/// An event that needs more, such as another version, implements [`Event`] itself. Needs the crate `serde` with `derive`.
#[macro_export]
macro_rules! event {
    (@refuses) => { false };
    (@refuses $reason:literal) => { true };
    ($name:ident { $id:ident : $id_type:ty $(, $field:ident : $type:ty)* $(,)? }, $aggregate:literal by [$($publisher:expr),+]
        $(, refuses $reason:literal)?) => {
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            pub $id: $id_type,
            $(pub $field: $type,)*
        }

        impl $crate::Event for $name {
            const TYPE: $crate::EventType = $crate::EventType {
                name: stringify!($name),
                version: 1,
                aggregate: $aggregate,
                publishers: &[$($publisher),+],
                refusal: $crate::event!(@refuses $($reason)?),
            };

            fn aggregate_id(&self) -> String {
                self.$id.to_string()
            }
        }

        $(impl $crate::Refusal for $name {
            fn reason(&self) -> String {
                $reason.to_owned()
            }
        })?
    };
}
