//! The decoder reads each message or returns an error, and never panics. PROPTEST_CASES sets the number of cases.
#![allow(clippy::unwrap_used)]

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use saga::{Event, EventType, Kind, Service, StepOn};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{RawEvent, decode};
use crate::{Context, EnvelopeError, TraceContext, envelope::StoredHeaders};

const INVENTORY: Service = Service("inventory");
static TAKE_NOTE: StepOn<Reserved> = StepOn::new(7, "take_note", Service("order"), &[], Kind::Retriable);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reserved {
    order_id: Uuid,
    lines: Vec<(String, i64)>,
    note: Option<String>,
}

impl Event for Reserved {
    const TYPE: EventType =
        EventType { name: "Reserved", version: 2, aggregate: "order", publishers: &[INVENTORY], refusal: false };

    fn aggregate_id(&self) -> String {
        self.order_id.to_string()
    }

    fn read(version: u16, body: &[u8]) -> Option<serde_json::Result<Self>> {
        match version {
            1 => Some(serde_json::from_slice::<FirstReserved>(body).map(Reserved::from)),
            2 => Some(serde_json::from_slice(body)),
            _ => None,
        }
    }
}

/// The first version: a single line, no note.
#[derive(Debug, Serialize, Deserialize)]
struct FirstReserved {
    order_id: Uuid,
    sku: String,
    quantity: i64,
}

impl From<FirstReserved> for Reserved {
    fn from(FirstReserved { order_id, sku, quantity }: FirstReserved) -> Self {
        Reserved { order_id, lines: vec![(sku, quantity)], note: None }
    }
}

const NAMES: [&str; 14] = [
    "ce-id",
    "ce-type",
    "ce-source",
    "ce-specversion",
    "ce-subject",
    "ce-time",
    "ce-sagaid",
    "ce-sagatype",
    "ce-sequence",
    "ce-correlationid",
    "ce-causationid",
    "traceparent",
    "baggage",
    "Nats-Msg-Id",
];

fn any_uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn text() -> impl Strategy<Value = String> {
    let known =
        ["", "\0", "Reserved.v1", "Reserved.v2", "Reserved.v3", "1", "-1", "9223372036854775808", "00-0-0-00", "a=b,c"];
    prop_oneof![
        proptest::sample::select(known.map(str::to_owned).to_vec()),
        any_uuid().prop_map(|id| id.to_string()),
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    vec((proptest::sample::select(NAMES.to_vec()), text()), 0..16).prop_map(|pairs| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            if let Ok(value) = value.parse::<HeaderValue>() {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

fn event() -> impl Strategy<Value = Reserved> {
    (any_uuid(), vec((text(), any::<i64>()), 0..5), proptest::option::of(text()))
        .prop_map(|(order_id, lines, note)| Reserved { order_id, lines, note })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let good = || event().prop_map(|event| serde_json::to_vec(&event).unwrap());
    let damaged = (good(), any::<proptest::sample::Index>(), any::<u8>()).prop_map(|(mut body, at, byte)| {
        let at = at.index(body.len());
        body[at] = byte;
        body
    });
    prop_oneof![good(), damaged, vec(any::<u8>(), 0..300)]
}

fn raw(headers: HeaderMap, body: Vec<u8>) -> RawEvent {
    RawEvent::new("events.inventory.Reserved".to_owned(), headers, Bytes::from(body), false)
}

proptest! {
    #[test]
    fn any_message_is_decoded_or_rejected(headers in headers(), body in body()) {
        let message = raw(headers.clone(), body.clone());
        match decode::<Reserved>(&message) {
            Ok(delivery) => {
                let read = match headers.get("ce-type").map(HeaderValue::as_str) {
                    Some("Reserved.v1") => serde_json::from_slice::<FirstReserved>(&body).unwrap().into(),
                    other => {
                        prop_assert_eq!(other, Some("Reserved.v2"));
                        serde_json::from_slice::<Reserved>(&body).unwrap()
                    }
                };
                prop_assert_eq!(read, delivery.event);
            }
            Err(refused) => prop_assert!(!crate::error::chain(&refused).contains('\0')),
        }
    }

    #[test]
    fn unknown_versions_differ_from_invalid_types(name in "[A-Z][A-Za-z0-9]{0,20}", version in 3_u16.., odd in text(), body in body()) {
        let refused = |event_type: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("ce-type", event_type.parse::<HeaderValue>().ok()?);
            headers.insert("ce-id", Uuid::nil().to_string());
            decode::<Reserved>(&raw(headers, body.clone())).err()
        };
        for event_type in [format!("Reserved.v{version}"), format!("Not{name}.v{version}"), format!("Not{name}.v1")] {
            let distinguished = matches!(refused(&event_type), Some(EnvelopeError::UnknownVersion { .. }));
            prop_assert!(distinguished, "{event_type} is not an unknown version");
        }
        for event_type in [format!("Reserved.v0{version}"), format!("Reserved.v+{version}"), format!("Reserved{version}"), format!("{odd}.v"), format!("Res erved.v{version}")] {
            let distinguished = matches!(refused(&event_type), None | Some(EnvelopeError::Invalid { name: "ce-type", .. }));
            prop_assert!(distinguished, "{event_type:?} is an unknown version");
        }
    }

    #[test]
    fn an_older_version_is_read_as_the_current_one(order_id in any_uuid(), sku in text(), quantity in any::<i64>()) {
        let mut headers = HeaderMap::new();
        headers.insert("ce-type", "Reserved.v1");
        headers.insert("ce-id", Uuid::nil().to_string());
        let body = serde_json::to_vec(&FirstReserved { order_id, sku: sku.clone(), quantity }).unwrap();
        let read = decode::<Reserved>(&raw(headers, body)).unwrap().event;
        prop_assert_eq!(read, Reserved { order_id, lines: vec![(sku, quantity)], note: None });
    }

    #[test]
    fn a_published_event_is_decoded_unchanged(event in event(), id in any_uuid(), saga_id in any_uuid(), sequence in any::<i64>()) {
        let context = Context::background("c-1").in_saga(saga_id, "OrderFulfillment");
        let stored = StoredHeaders::new(INVENTORY, &TAKE_NOTE.step, &context, TraceContext::root());
        let mut headers = HeaderMap::new();
        let stored = serde_json::to_value(&stored).unwrap();
        for (name, value) in stored.as_object().unwrap() {
            headers.insert(name.as_str(), value.as_str().unwrap());
        }
        for (name, value) in [("ce-id", id.to_string()), ("ce-type", Reserved::TYPE.wire_name()), ("ce-sagaid", saga_id.to_string()), ("ce-sequence", sequence.to_string())] {
            headers.insert(name, value);
        }
        let read = decode::<Reserved>(&raw(headers, serde_json::to_vec(&event).unwrap())).unwrap();
        prop_assert_eq!(read.event, event);
        prop_assert_eq!((read.meta.event_id, read.meta.sequence, read.meta.saga_id()), (id, sequence, Some(saga_id)));
        prop_assert_eq!(read.meta.published_in.correlation_id, "c-1");
    }
}
