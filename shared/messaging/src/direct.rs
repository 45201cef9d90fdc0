//! Publishing without an outbox, directly after the commit. It demonstrates which events that loses; it is used only with the
//! setting `WITHOUT=outbox`, and absent from a build without faults.

use time::OffsetDateTime;

use crate::{
    bus::Bus,
    outbox::{OutboxRow, PendingRow},
    relay::publish_once,
};

/// Publishes committed events. Events that the broker does not accept now are lost.
pub(crate) async fn publish(bus: &Bus, events: Vec<OutboxRow>) {
    for event in events {
        let (event_id, event_type) = (event.event_id, event.event_type.clone());
        let sent = match bus.is_connected() {
            true => publish_once(bus, &pending(event)).await,
            false => Err("the broker is unavailable".to_owned()),
        };
        if let Err(error) = sent {
            tracing::error!(%event_id, event_type, error, "the event is lost, because the outbox is switched off");
        }
    }
}

fn pending(event: OutboxRow) -> PendingRow {
    PendingRow {
        event_id: event.event_id,
        position: 0,
        aggregate_id: event.aggregate_id,
        aggregate_sequence: event.aggregate_sequence,
        event_type: event.event_type,
        subject: event.subject,
        headers: event.headers,
        payload: event.payload,
        saga_id: event.saga_id,
        created_at: OffsetDateTime::now_utc(),
        republication: 0,
        attempts: 0,
    }
}
