//! What consumers have acknowledged against what they have had: a consumer acknowledges an event only when its inbox, or a
//! dead letter, is committed. Whatever is acknowledged without them is lost.

use std::collections::HashSet;

use async_nats::jetstream;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{AuditError, Violations, broker, options::Reach, pages::Page};

/// Up to where a durable consumer has acknowledged everything. What it acknowledged above that, nobody can tell from
/// outside.
#[derive(Debug, Clone)]
pub(super) struct Floor {
    pub(super) stream: &'static str,
    epoch: i64,
    consumer: String,
    pub(super) subject: String,
    pub(super) sequence: u64,
}

impl Floor {
    /// Whether this is the same consumer, and not as far. In another life of the stream there is nothing to come to.
    pub(super) fn is_short_of(&self, goal: &Floor) -> bool {
        self.consumer == goal.consumer
            && (self.stream, self.epoch) == (goal.stream, goal.epoch)
            && self.sequence < goal.sequence
    }

    /// That the consumer has not come here.
    pub(super) fn missing(&self) -> String {
        let Floor { stream, consumer, sequence, .. } = self;
        format!("{consumer} has not had everything up to {sequence} of {stream}")
    }
}

/// To be read before the snapshot, so that what is acknowledged by then is in it.
pub(super) async fn floors(broker: &jetstream::Context) -> Result<Vec<Floor>, AuditError> {
    let mut floors = Vec::new();
    for (name, _) in broker::streams() {
        let stream = broker::stream(broker, name).await?;
        let epoch = broker::epoch(stream.cached_info());
        for info in broker::consumers(broker, name).await? {
            // Whoever else looks at the streams, such as another audit, has no inbox.
            if info.config.durable_name.is_some() {
                let (subject, sequence) = (info.config.filter_subject, info.ack_floor.stream_sequence);
                floors.push(Floor { stream: name, epoch, consumer: info.name, subject, sequence });
            }
        }
    }
    Ok(floors)
}

/// Older events are not looked at: they may be many.
pub(super) async fn young(connection: &mut PgConnection, reach: Reach) -> Result<Uuid, sqlx::Error> {
    let since = sqlx::query_scalar("select orders.uuid_v7_floor(now() - $1 * interval '1 hour')").bind(reach.hours());
    since.fetch_one(connection).await
}

/// The messages of this page that were acknowledged and that their consumer never had: neither applied nor put aside as a
/// dead letter. What it had stays, so the connection may read later than the floors are.
pub(super) async fn never_had(
    connection: &mut PgConnection,
    stream: &str,
    page: &Page,
    floors: &[Floor],
    since: Uuid,
    found: &mut Violations,
) -> Result<(), sqlx::Error> {
    let acknowledged = acknowledged(stream, page, floors, since);
    if acknowledged.is_empty() {
        return Ok(());
    }
    let ids: HashSet<Uuid> = acknowledged.iter().map(|(event_id, _)| *event_id).collect();
    let had: Vec<(Uuid, String)> = sqlx::query_as(
        "select event_id, consumer from audit.inbox where event_id = any($1)
        union all
        select event_id, consumer from audit.dead_letter where event_id = any($1)",
    )
    .bind(ids.into_iter().collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    let had: HashSet<(Uuid, &str)> = had.iter().map(|(event_id, consumer)| (*event_id, consumer.as_str())).collect();
    for (event_id, consumer) in acknowledged.into_iter().filter(|had_by| !had.contains(had_by)) {
        found.add(format!("{consumer} has acknowledged event {event_id} and never had it"));
    }
    Ok(())
}

/// The young events of the page, each with every consumer that has acknowledged it.
fn acknowledged<'f>(stream: &str, page: &Page, floors: &'f [Floor], since: Uuid) -> Vec<(Uuid, &'f str)> {
    let of_this: Vec<&Floor> =
        floors.iter().filter(|floor| floor.stream == stream && floor.epoch == page.epoch).collect();
    let mut acknowledged = Vec::new();
    for stored in &page.messages {
        let Some(event_id) = stored.event_id.filter(|event_id| *event_id > since) else { continue };
        let by = of_this.iter().filter(|floor| floor.subject == stored.subject && stored.sequence <= floor.sequence);
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

    fn floor(sequence: u64) -> Floor {
        let (consumer, subject) = ("inventory-reserve_stock".to_owned(), SUBJECT.to_owned());
        Floor { stream: "ORDER", epoch: 7, consumer, subject, sequence }
    }

    #[test]
    fn what_a_consumer_must_have_had_is_what_it_acknowledged_lately_in_this_life_of_the_stream() {
        let page = Page::of(7, vec![stored(1, 11), stored(2, 12)]);
        let ids = |floor: Floor, since: u128| {
            let floors = [floor];
            let found = acknowledged("ORDER", &page, &floors, Uuid::from_u128(since));
            found.into_iter().map(|(event_id, _)| event_id.as_u128()).collect::<Vec<_>>()
        };
        assert_eq!(ids(floor(2), 10), [11, 12]);
        assert_eq!(ids(floor(1), 10), [11], "the second is not acknowledged yet");
        assert_eq!(ids(floor(2), 11), [12], "nobody knows of the first any more");
        assert_eq!(ids(Floor { epoch: 6, ..floor(2) }, 10), [] as [u128; 0]);
        assert_eq!(ids(Floor { subject: "events.order.OrderCancelled".to_owned(), ..floor(2) }, 10), [] as [u128; 0]);
    }
}
