//! The headers of an event: CloudEvents 1.0 in binary mode, as `messaging` sends them. The tests compare what is sent.

use contracts::order_fulfillment::SAGA;
use saga::EventType;
use serde_json::{Value, json};

use super::json_schema::COMPONENTS;

const OF_ALL: &str = "EventHeaders";
const OF_A_SAGA: &str = "SagaEventHeaders";

/// The schemas that [`of`] refers to.
pub(crate) fn parts() -> [(&'static str, Value); 2] {
    [(OF_ALL, of_all()), (OF_A_SAGA, of_a_saga())]
}

/// The headers of this event.
pub(crate) fn of(event: &EventType) -> Value {
    let common = if SAGA.events().contains(event) { OF_A_SAGA } else { OF_ALL };
    let own = json!({"properties": {"ce-type": {"const": event.wire_name()}}});
    json!({"type": "object", "allOf": [{"$ref": format!("{COMPONENTS}{common}")}, own]})
}

fn of_all() -> Value {
    json!({
        "type": "object",
        "description": "Each value is a text.",
        "required": [
            "Nats-Msg-Id", "ce-compensating", "ce-correlationid", "ce-id", "ce-partitionkey", "ce-sequence", "ce-source",
            "ce-specversion", "ce-stepnumber", "ce-subject", "ce-time", "ce-type", "content-type", "traceparent",
        ],
        "properties": {
            "Nats-Expected-Last-Sequence": number("The broker stores the event only if the stream ended there."),
            "Nats-Msg-Id": text("The event's id; published again, because a stream lost it, with a suffix."),
            "baggage": text("W3C baggage of the request that began it all."),
            "ce-causationid": uuid("The event that caused this one. Missing: a request or a deadline did."),
            "ce-compensating": {"enum": ["true", "false"], "description": "Whether the event undoes an order, or begins to."},
            "ce-correlationid": text("The correlation id of the request that began it all."),
            "ce-id": uuid("The event's id. Whoever has seen it drops the event: it may be delivered twice."),
            "ce-partitionkey": text("The aggregate's id: its events keep their order."),
            "ce-sequence": number("The number among the events of the aggregate, from 1."),
            "ce-source": text("The service that publishes the event: `/services/order`."),
            "ce-specversion": {"const": "1.0"},
            "ce-stepnumber": number("The number of the step that publishes the event; 0: none."),
            "ce-subject": text("The aggregate's id."),
            "ce-time": {"type": "string", "format": "date-time", "description": "When the event was written, by the database's clock."},
            "ce-type": text("Name and version."),
            "content-type": {"const": "application/json"},
            "traceparent": {
                "type": "string",
                "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
                "description": "W3C trace context.",
            },
        },
    })
}

fn of_a_saga() -> Value {
    json!({
        "allOf": [{"$ref": format!("{COMPONENTS}{OF_ALL}")}],
        "required": ["ce-sagaid", "ce-sagatype"],
        "properties": {"ce-sagaid": uuid("The saga."), "ce-sagatype": {"const": SAGA.saga_type}},
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "description": description})
}

fn uuid(description: &str) -> Value {
    json!({"type": "string", "format": "uuid", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[0-9]+$", "description": description})
}
