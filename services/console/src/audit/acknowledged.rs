//! What consumers have acknowledged against what they have had: a consumer acknowledges an event only when its inbox, or a
//! dead letter, is committed. Whatever is acknowledged without them is lost.

use std::collections::HashSet;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{
    AuditError, Violations,
    broker::{self, STREAMS, unreadable},
    snapshot::Reach,
    streams::Contents,
};

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

/// What consumers have had: applied, or put aside as a dead letter.
#[derive(Debug)]
pub(super) struct Had {
    by: HashSet<(Uuid, String)>,
    /// Older events are not looked at: they may be many.
    since: Uuid,
}

/// To be read before the snapshot, so that what is acknowledged by then is in it.
pub(super) async fn floors(broker: &jetstream::Context) -> Result<Vec<Floor>, AuditError> {
    let mut floors = Vec::new();
    for (name, _) in STREAMS {
        let stream = broker::stream(broker, name).await?;
        let epoch = broker::epoch(stream.cached_info());
        let asked = || format!("the consumers of stream {name}");
        let mut consumers = stream.consumers();
        while let Some(info) = consumers.try_next().await.map_err(unreadable(asked()))? {
            // Whoever else looks at the streams, such as another audit, has no inbox.
            if info.config.durable_name.is_some() {
                let (subject, sequence) = (info.config.filter_subject, info.ack_floor.stream_sequence);
                floors.push(Floor { stream: name, epoch, consumer: info.name, subject, sequence });
            }
        }
    }
    Ok(floors)
}

/// What consumers have had of the latest events, as the connection's transaction sees it.
pub(super) async fn had(connection: &mut PgConnection, reach: Reach) -> Result<Had, sqlx::Error> {
    let since = sqlx::query_scalar("select orders.uuid_v7_floor(now() - $1 * interval '1 hour')").bind(reach.hours());
    let since: Uuid = since.fetch_one(&mut *connection).await?;
    let of = |(_, schema): (&str, &str)| {
        format!(
            "select event_id, consumer from {schema}.inbox where event_id > $1
            union all
            select event_id, consumer from {schema}.dead_letter where event_id > $1"
        )
    };
    let all = sqlx::query_as(AssertSqlSafe(STREAMS.map(of).join(" union all ")));
    let by: Vec<(Uuid, String)> = all.bind(since).fetch_all(connection).await?;
    Ok(Had { by: by.into_iter().collect(), since })
}

/// The messages of this stream that were acknowledged and that their consumer never had.
pub(super) fn never_had(stream: &str, contents: &Contents, floors: &[Floor], had: &Had, found: &mut Violations) {
    let of_this: Vec<&Floor> =
        floors.iter().filter(|floor| floor.stream == stream && floor.epoch == contents.epoch).collect();
    for stored in &contents.messages {
        let Some(event_id) = stored.event_id.filter(|event_id| *event_id > had.since) else { continue };
        let acknowledged =
            of_this.iter().filter(|floor| floor.subject == stored.subject && stored.sequence <= floor.sequence);
        for Floor { consumer, .. } in acknowledged {
            if !had.by.contains(&(event_id, consumer.clone())) {
                found.add(format!("{consumer} has acknowledged event {event_id} and never had it"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::audit::streams::Stored;

    fn stored(sequence: u64, id: u128) -> Stored {
        let subject = "events.order.OrderCreated".to_owned();
        Stored { sequence, subject, event_id: Some(Uuid::from_u128(id)), at: OffsetDateTime::UNIX_EPOCH }
    }

    fn floor(sequence: u64) -> Floor {
        let (consumer, subject) = ("inventory-reserve_stock".to_owned(), "events.order.OrderCreated".to_owned());
        Floor { stream: "ORDER", epoch: 7, consumer, subject, sequence }
    }

    #[test]
    fn what_was_acknowledged_and_never_had_is_found() {
        let contents = Contents { epoch: 7, first_sequence: 1, messages: vec![stored(1, 11), stored(2, 12)] };
        let count = |floor: Floor, had: &[u128], since: u128| {
            let by = had.iter().map(|id| (Uuid::from_u128(*id), "inventory-reserve_stock".to_owned())).collect();
            let mut found = Violations::default();
            never_had("ORDER", &contents, &[floor], &Had { by, since: Uuid::from_u128(since) }, &mut found);
            found.count
        };
        assert_eq!(count(floor(2), &[11, 12], 10), 0);
        assert_eq!(count(floor(2), &[12], 10), 1);
        assert_eq!(count(floor(1), &[11], 10), 0, "the second is not acknowledged yet");
        assert_eq!(count(floor(2), &[12], 11), 0, "nobody knows of the first any more");
        assert_eq!(
            count(Floor { epoch: 6, ..floor(2) }, &[], 10),
            0,
            "it was acknowledged in another life of the stream"
        );
        assert_eq!(count(Floor { subject: "events.order.OrderCancelled".to_owned(), ..floor(2) }, &[], 10), 0);
    }
}
