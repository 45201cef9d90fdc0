//! Acknowledged events compared with inboxes: a consumer acknowledges an event only after its inbox row or its dead letter is
//! committed. An event that is acknowledged without either is lost.

use std::collections::HashSet;

use async_nats::jetstream;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{AuditError, Options, Violations, broker, pages::Page};

/// The acknowledgement floor of a durable consumer: it has acknowledged everything up to this sequence. The broker does not
/// list acknowledgements above it.
#[derive(Debug, Clone)]
pub(super) struct AckFloor {
    pub(super) stream: &'static str,
    epoch: i64,
    consumer: String,
    pub(super) subject: String,
    pub(super) sequence: u64,
}

impl AckFloor {
    /// Whether the same consumer of the same stream epoch is behind `goal`.
    pub(super) fn is_behind(&self, goal: &AckFloor) -> bool {
        self.consumer == goal.consumer
            && (self.stream, self.epoch) == (goal.stream, goal.epoch)
            && self.sequence < goal.sequence
    }

    pub(super) fn describe_unreached(&self) -> String {
        let AckFloor { stream, consumer, sequence, .. } = self;
        format!("{consumer} has not acknowledged everything up to {sequence} of {stream}")
    }
}

/// Read these before the snapshot, so that the inbox rows of all that is acknowledged are in it.
pub(super) async fn ack_floors(broker: &jetstream::Context) -> Result<Vec<AckFloor>, AuditError> {
    let mut floors = Vec::new();
    for (name, _) in broker::streams() {
        let stream = broker::stream(broker, name).await?;
        let epoch = broker::epoch(stream.cached_info());
        for info in broker::consumers(broker, name).await? {
            let (subject, sequence) = (info.config.filter_subject, info.ack_floor.stream_sequence);
            floors.push(AckFloor { stream: name, epoch, consumer: info.name, subject, sequence });
        }
    }
    Ok(floors)
}

/// Events with smaller ids are too old to be checked.
pub(super) async fn oldest_checked(connection: &mut PgConnection, options: &Options) -> sqlx::Result<Uuid> {
    let since = sqlx::query_scalar("select orders.uuid_v7_floor(now() - $1 * interval '1 hour')").bind(options.hours());
    since.fetch_one(connection).await
}

/// Adds a violation for each message of the page that its consumer has acknowledged and that is in neither its inbox nor its dead
/// letters. Those rows are kept, so the connection may read them later than the floors.
pub(super) async fn acknowledged_but_unprocessed(
    connection: &mut PgConnection,
    stream: &str,
    page: &Page,
    floors: &[AckFloor],
    since: Uuid,
    found: &mut Violations,
) -> sqlx::Result<()> {
    let acknowledged = acknowledged(stream, page, floors, since);
    if acknowledged.is_empty() {
        return Ok(());
    }
    let ids: HashSet<Uuid> = acknowledged.iter().map(|(event_id, _)| *event_id).collect();
    let query = sqlx::query_as(
        "select event_id, consumer from audit.inbox where event_id = any($1)
        union all
        select event_id, consumer from audit.dead_letter where event_id = any($1)",
    );
    let processed: Vec<(Uuid, String)> = query.bind(ids.into_iter().collect::<Vec<_>>()).fetch_all(connection).await?;
    let processed: HashSet<(Uuid, &str)> = processed.iter().map(|(id, consumer)| (*id, consumer.as_str())).collect();
    for (event_id, consumer) in acknowledged.into_iter().filter(|delivery| !processed.contains(delivery)) {
        found.add(format!("{consumer} has acknowledged event {event_id} without processing it"));
    }
    Ok(())
}

/// The events of the page from `since` on, each with every consumer that has acknowledged it.
fn acknowledged<'f>(stream: &str, page: &Page, floors: &'f [AckFloor], since: Uuid) -> Vec<(Uuid, &'f str)> {
    let floors: Vec<_> = floors.iter().filter(|floor| (floor.stream, floor.epoch) == (stream, page.epoch)).collect();
    let mut acknowledged = Vec::new();
    for stored in &page.messages {
        let Some(event_id) = stored.event_id.filter(|event_id| *event_id > since) else { continue };
        let by = floors.iter().filter(|floor| floor.subject == stored.subject && stored.sequence <= floor.sequence);
        acknowledged.extend(by.map(|floor| (event_id, floor.consumer.as_str())));
    }
    acknowledged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::pages::Stored;

    const SUBJECT: &str = "events.order.OrderCreated";

    fn stored(sequence: u64, id: u128) -> Stored {
        Stored { sequence, subject: SUBJECT.to_owned(), event_id: Some(Uuid::from_u128(id)) }
    }

    fn floor(sequence: u64) -> AckFloor {
        let (consumer, subject) = ("inventory-reserve_stock".to_owned(), SUBJECT.to_owned());
        AckFloor { stream: "ORDER", epoch: 7, consumer, subject, sequence }
    }

    #[test]
    fn acknowledged_events_are_matched_by_age_epoch_and_subject() {
        let page = Page::of(7, vec![stored(1, 11), stored(2, 12)]);
        let ids = |floor: AckFloor, since: u128| {
            let floors = [floor];
            let found = acknowledged("ORDER", &page, &floors, Uuid::from_u128(since));
            found.into_iter().map(|(event_id, _)| event_id.as_u128()).collect::<Vec<_>>()
        };
        assert_eq!(ids(floor(2), 10), [11, 12]);
        assert_eq!(ids(floor(1), 10), [11], "the second is not acknowledged yet");
        assert_eq!(ids(floor(2), 11), [12], "the first is too old");
        assert_eq!(ids(AckFloor { epoch: 6, ..floor(2) }, 10), [] as [u128; 0]);
        let other_event = AckFloor { subject: "events.order.OrderCancelled".to_owned(), ..floor(2) };
        assert_eq!(ids(other_event, 10), [] as [u128; 0]);
    }
}
