//! The broker's streams compared with the publish acknowledgements in the outboxes: every event marked as published is in its
//! stream, and every event in a stream was committed. Memory is bounded: a stream is read page by page, and the database is
//! queried for the events of each page.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_nats::jetstream;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    AuditError, Options, Verdict, Violations,
    acknowledged::{AckFloor, acknowledged_but_unprocessed, oldest_checked},
    broker,
    pages::{PAGE, Page, Pages, Stored},
};

/// What one service had published at the snapshot's moment.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) stream: &'static str,
    schema: &'static str,
    /// How many publish acknowledgements there are, by stream epoch and page.
    ack_counts: HashMap<(i64, i64), i64>,
    /// Events in the journals of recent sagas that are neither in the outbox nor acknowledged by the broker.
    unaccounted: Vec<Unaccounted>,
    at: OffsetDateTime,
}

/// An event of a step that was journalled.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Unaccounted {
    event_id: Uuid,
    event_type: String,
    saga_id: Uuid,
}

/// Where the broker stored an event, by its acknowledgement.
#[derive(Debug, Clone, sqlx::FromRow)]
struct PublishAck {
    event_id: Uuid,
    event_type: String,
    stream_sequence: i64,
}

/// Where a committed event is: published, or still in the outbox. The relay may have sent an event that is still in the outbox.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(super) struct Place {
    event_id: Uuid,
    stream_sequence: i64,
    stream_epoch: i64,
    /// It was acknowledged before the snapshot.
    counted: bool,
}

pub(super) async fn published(connection: &mut PgConnection, options: &Options) -> sqlx::Result<Vec<Published>> {
    let mut all = Vec::new();
    for (stream, schema) in broker::streams() {
        let unaccounted: Vec<Unaccounted> = sqlx::query_as(AssertSqlSafe(format!(
            "select event_id, event_type, saga_id
            from saga.saga_step
            where service = $1 and event_id is not null and occurred_at > now() - $2 * interval '1 hour'
                and saga_id > {schema}.uuid_v7_floor(now() - interval '1 day')
                and not exists (select from {schema}.outbox o where o.event_id = saga_step.event_id)
                and not exists (select from {schema}.outbox_published p where p.event_id = saga_step.event_id)
                -- Given up by an operator.
                and not exists (select from {schema}.outbox_action a where a.event_id = saga_step.event_id and a.action = 'DISCARD')"
        )))
        .bind(stream.to_lowercase())
        .bind(options.hours())
        .fetch_all(&mut *connection)
        .await?;
        // A void acknowledgement belongs to no stream epoch.
        let query = sqlx::query_as(AssertSqlSafe(format!(
            "select case when v.event_id is null then stream_epoch else 0 end, stream_sequence / $2, count(*)
            from {schema}.outbox_published p
            left join {schema}.void_receipt v on v.event_id = p.event_id
            where stream = $1
            group by 1, 2"
        )));
        let ack_counts: Vec<(i64, i64, i64)> = query.bind(stream).bind(PAGE).fetch_all(&mut *connection).await?;
        let ack_counts = ack_counts.into_iter().map(|(epoch, page, count)| ((epoch, page), count)).collect();
        let at = sqlx::query_scalar("select now()").fetch_one(&mut *connection).await?;
        all.push(Published { stream, schema, ack_counts, unaccounted, at });
    }
    Ok(all)
}

/// `floors` were read before the snapshot, `published` in it. The connection reads after the snapshot, when everything committed
/// is still there.
pub(super) async fn check(
    broker: &jetstream::Context,
    connection: &mut PgConnection,
    published: Vec<Published>,
    floors: &[AckFloor],
    options: &Options,
) -> Result<[Verdict; 4], AuditError> {
    let [mut missing, mut uncommitted, mut lost, mut unprocessed] = std::array::from_fn(|_| Violations::default());
    let since = oldest_checked(connection, options).await?;
    for mut service in published {
        let mut pages = Pages::open(broker, service.stream).await?;
        let mut ack_counts = service.ack_counts_of(pages.epoch);
        let last = ack_counts.keys().next_back().copied();
        while let Some(page) = pages.next().await? {
            let places = service.places(connection, &page).await?;
            let counted = ack_counts.remove(&page.number).unwrap_or_default();
            // Events published since are after the snapshot's last acknowledgement, and could mask a missing one.
            if Some(page.number) >= last || counted != page.found(&places) {
                let acks = service.acks_on(connection, &page).await?;
                page.missing(service.stream, &acks, &options.deleted, &mut missing);
            }
            let unknown = page.unknown(&places);
            if !unknown.is_empty() {
                uncommitted_of(service.stream, &unknown, service.kept_from(connection).await?, &mut uncommitted);
            }
            service.unaccounted.retain(|event| !page.has(event.event_id));
            acknowledged_but_unprocessed(connection, service.stream, &page, floors, since, &mut unprocessed).await?;
        }
        for number in ack_counts.into_keys() {
            let page = pages.empty(number);
            let acks = service.acks_on(connection, &page).await?;
            page.missing(service.stream, &acks, &options.deleted, &mut missing);
        }
        service.lost(&mut lost);
    }
    Ok([
        Verdict::new(
            "published_in_stream",
            "Every event marked as published is in its stream at the acknowledged sequence, \
             unless the stream has aged it out or was recreated since.",
            missing,
        ),
        Verdict::new("stream_only_committed", "Every event in a stream was committed before it was sent.", uncommitted),
        Verdict::new(
            "journal_published",
            "Every event in a journal is in an outbox, marked as published, or in its stream (the latest ones).",
            lost,
        ),
        Verdict::new(
            "acknowledged_was_had",
            "Every event that a consumer has acknowledged is in its inbox or a dead letter (the latest ones).",
            unprocessed,
        ),
    ])
}

impl Published {
    /// How many publish acknowledgements there are of each page in this stream epoch.
    fn ack_counts_of(&self, epoch: i64) -> BTreeMap<i64, i64> {
        let of_epoch = self.ack_counts.iter().filter(|((of, _), _)| *of == epoch);
        of_epoch.map(|((_, page), count)| (*page, *count)).collect()
    }

    pub(super) async fn places(
        &self,
        connection: &mut PgConnection,
        page: &Page,
    ) -> sqlx::Result<HashMap<Uuid, Place>> {
        let schema = self.schema;
        let ids: Vec<Uuid> = page.messages.iter().filter_map(|stored| stored.event_id).collect();
        let query = sqlx::query_as(AssertSqlSafe(format!(
            "select p.event_id, stream_sequence, case when v.event_id is null then stream_epoch else 0 end as stream_epoch,
                published_at <= $2 as counted
            from {schema}.outbox_published p
            left join {schema}.void_receipt v on v.event_id = p.event_id
            where p.event_id = any($1)
            union all
            select event_id, 0, 0, false from {schema}.outbox where event_id = any($1)"
        )));
        let places: Vec<Place> = query.bind(&ids).bind(self.at).fetch_all(connection).await?;
        Ok(places.into_iter().map(|place| (place.event_id, place)).collect())
    }

    /// The publish acknowledgements of the page from before the snapshot.
    async fn acks_on(&self, connection: &mut PgConnection, page: &Page) -> sqlx::Result<Vec<PublishAck>> {
        let (schema, first) = (self.schema, page.number * PAGE);
        sqlx::query_as(AssertSqlSafe(format!(
            "select event_id, event_type, stream_sequence
            from {schema}.outbox_published
            where stream = $1 and stream_epoch = $2 and stream_sequence between $3 and $4 and published_at <= $5
                and event_id not in (select event_id from {schema}.void_receipt)
            order by stream_sequence"
        )))
        .bind(self.stream)
        .bind(page.epoch)
        .bind(first)
        .bind(first + PAGE - 1)
        .bind(self.at)
        .fetch_all(connection)
        .await
    }

    /// Acknowledgements of smaller ids may have been dropped with their day's partition. The default partition holds the ids of
    /// wrong clocks, and is not dropped.
    pub(super) async fn kept_from(&self, connection: &mut PgConnection) -> sqlx::Result<Option<Uuid>> {
        let schema = self.schema;
        let query = sqlx::query_scalar(AssertSqlSafe(format!(
            "select event_id from {schema}.outbox_published
            where tableoid <> '{schema}.outbox_published_default'::regclass
            order by event_id
            limit 1"
        )));
        query.fetch_optional(connection).await
    }

    /// Whether the stream has everything that was published after the last acknowledgement: it has the same epoch, and has aged
    /// out none of it.
    pub(super) async fn is_continued_by(&self, pages: &Pages, connection: &mut PgConnection) -> sqlx::Result<bool> {
        let select = format!("select stream_epoch, last_sequence from {}.relay_lease", self.schema);
        let (epoch, last): (i64, i64) = sqlx::query_as(AssertSqlSafe(select)).fetch_one(connection).await?;
        let state = &pages.stream.cached_info().state;
        let first = if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence };
        // The epoch is 0 before the relay's first run.
        Ok((epoch == pages.epoch || epoch == 0) && first <= last.unsigned_abs() + 1)
    }

    /// Adds the events that are not in the stream either; to be called when it has been read.
    fn lost(&self, found: &mut Violations) {
        for Unaccounted { event_id, event_type, saga_id } in &self.unaccounted {
            found.add(format!("{}: {event_type} {event_id} of saga {saga_id} is nowhere", self.stream));
        }
    }
}

impl Page {
    /// How many of the snapshot's acknowledgements match a message of this page.
    fn found(&self, places: &HashMap<Uuid, Place>) -> i64 {
        let is_right = |stored: &&Stored| {
            let place = stored.event_id.and_then(|id| places.get(&id));
            place.is_some_and(|place| {
                place.counted
                    && (place.stream_epoch, place.stream_sequence.unsigned_abs()) == (self.epoch, stored.sequence)
            })
        };
        self.messages.iter().filter(is_right).fold(0, |found, _| found + 1)
    }

    fn missing(&self, stream: &str, acks: &[PublishAck], deleted: &HashSet<(String, u64)>, found: &mut Violations) {
        for PublishAck { event_id, event_type, stream_sequence } in acks {
            let sequence = stream_sequence.unsigned_abs();
            if sequence < self.first_sequence {
                continue;
            }
            let at = self.messages.binary_search_by_key(&sequence, |stored| stored.sequence);
            match at.ok().and_then(|at| self.messages.get(at)) {
                Some(stored) if stored.event_id == Some(*event_id) => {}
                Some(stored) => found.add(format!(
                    "{stream} {sequence} should be {event_type} {event_id}, but is {}",
                    name(stored.event_id)
                )),
                None if deleted.contains(&(stream.to_owned(), sequence)) => {}
                None => found.add(format!("{stream} {sequence} is gone: {event_type} {event_id}")),
            }
        }
    }

    /// The messages that the database does not know.
    pub(super) fn unknown(&self, places: &HashMap<Uuid, Place>) -> Vec<&Stored> {
        let is_known = |stored: &&Stored| stored.event_id.is_some_and(|id| places.contains_key(&id));
        self.messages.iter().filter(|stored| !is_known(stored)).collect()
    }
}

/// Events are committed before they are sent, so the database knows every event of a stream, unless its partition was dropped.
fn uncommitted_of(stream: &str, unknown: &[&Stored], kept_from: Option<Uuid>, found: &mut Violations) {
    let Some(kept_from) = kept_from else { return };
    for stored in unknown.iter().filter(|stored| stored.event_id.is_none_or(|id| id >= kept_from)) {
        found.add(format!("{stream} {}: {}", stored.sequence, name(stored.event_id)));
    }
}

fn name(event_id: Option<Uuid>) -> String {
    event_id.map_or_else(|| "a message without an event id".to_owned(), |id| format!("event {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: i64 = 7;

    fn stored(sequence: u64, id: u128) -> Stored {
        let subject = "events.order.OrderCreated".to_owned();
        Stored { sequence, subject, event_id: Some(Uuid::from_u128(id)) }
    }

    fn page(messages: Vec<Stored>) -> Page {
        Page::of(EPOCH, messages)
    }

    fn ack((id, stream_sequence): (u128, i64)) -> PublishAck {
        PublishAck { event_id: Uuid::from_u128(id), event_type: "OrderCreated.v1".to_owned(), stream_sequence }
    }

    fn missing(acks: &[(u128, i64)], page: &Page) -> u64 {
        let mut found = Violations::default();
        let acks: Vec<PublishAck> = acks.iter().copied().map(ack).collect();
        page.missing("ORDER", &acks, &HashSet::from([("ORDER".to_owned(), 9)]), &mut found);
        found.count
    }

    fn places(places: &[(u128, i64, i64, bool)]) -> HashMap<Uuid, Place> {
        let place = |&(id, stream_sequence, stream_epoch, counted): &(u128, i64, i64, bool)| {
            let event_id = Uuid::from_u128(id);
            (event_id, Place { event_id, stream_sequence, stream_epoch, counted })
        };
        places.iter().map(place).collect()
    }

    #[test]
    fn an_acknowledged_event_that_is_gone_or_replaced_is_found() {
        let acks = [(1, 1), (2, 2), (3, 3)];
        assert_eq!(missing(&acks, &page(vec![stored(1, 1), stored(2, 2), stored(3, 3)])), 0);
        assert_eq!(missing(&acks, &page(vec![stored(1, 1), stored(3, 3)])), 1);
        assert_eq!(missing(&acks, &page(vec![stored(1, 1), stored(2, 9), stored(3, 3)])), 1);
        let deleted = [(1, 1), (2, 9), (3, 10)];
        assert_eq!(missing(&deleted, &page(vec![stored(1, 1), stored(10, 3)])), 0);
        assert_eq!(missing(&deleted, &page(vec![stored(1, 1), stored(9, 5), stored(10, 3)])), 1);
        assert_eq!(missing(&[(1, 1), (2, 2)], &page(vec![stored(2, 2)])), 0, "the stream has aged the first out");
    }

    #[test]
    fn only_acknowledgements_of_the_snapshot_that_match_are_found() {
        let page = page(vec![stored(1, 1), stored(2, 2), stored(3, 3)]);
        let found = |known: &[(u128, i64, i64, bool)]| page.found(&places(known));
        assert_eq!(found(&[(1, 1, EPOCH, true), (2, 2, EPOCH, true), (3, 3, EPOCH, true)]), 3);
        assert_eq!(found(&[(1, 1, EPOCH, true), (2, 3, EPOCH, true), (3, 2, EPOCH, true)]), 1, "two are swapped");
        assert_eq!(found(&[(1, 1, EPOCH - 1, true), (2, 2, EPOCH, false), (3, 0, 0, false)]), 0);
    }

    #[test]
    fn an_unacknowledged_journal_event_is_lost_unless_in_the_stream() {
        let event = |id| Unaccounted {
            event_id: Uuid::from_u128(id),
            event_type: "OrderCreated.v1".to_owned(),
            saga_id: Uuid::nil(),
        };
        let mut service = Published {
            stream: "ORDER",
            schema: "orders",
            ack_counts: HashMap::new(),
            unaccounted: vec![event(5), event(6)],
            at: OffsetDateTime::UNIX_EPOCH,
        };
        let page = page(vec![stored(1, 5)]);
        service.unaccounted.retain(|event| !page.has(event.event_id));
        let mut found = Violations::default();
        service.lost(&mut found);
        assert_eq!((found.count, found.examples[0].contains("of saga")), (1, true), "{found:?}");
    }

    #[test]
    fn an_uncommitted_event_is_found() {
        let uncommitted = |id, known: &[(u128, i64, i64, bool)], kept_from: Option<u128>| {
            let page = page(vec![stored(1, 5), stored(2, id)]);
            let mut found = Violations::default();
            let kept_from = kept_from.map(Uuid::from_u128);
            uncommitted_of("ORDER", &page.unknown(&places(known)), kept_from, &mut found);
            found.count
        };
        let known = [(5, 1, EPOCH, true), (6, 0, 0, false)];
        assert_eq!(uncommitted(6, &known, Some(5)), 0, "it still waits in the outbox");
        assert_eq!(uncommitted(8, &known, Some(5)), 1);
        assert_eq!(uncommitted(4, &known, Some(5)), 0, "its partition was dropped");
        assert_eq!(uncommitted(8, &known, None), 0, "nothing is kept");
    }
}
