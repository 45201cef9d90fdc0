//! The broker's streams against the receipts of the outboxes: what is marked as published is there,
//! and what is there was committed. Neither is ever held whole: a stream is read page by page, and for each page the
//! database is asked what it knows of these very events.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_nats::jetstream;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    AuditError, Options, Verdict, Violations,
    acknowledged::{self, Floor},
    broker,
    options::Reach,
    pages::{PAGE, Page, Pages, Stored},
};

/// What one service had published at the snapshot's moment.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) stream: &'static str,
    schema: &'static str,
    /// How many receipts there are, by epoch of the stream and page.
    receipts: HashMap<(i64, i64), i64>,
    /// Events that the journals of young sagas tell of, and that neither wait in the outbox nor have a receipt.
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

/// Where the broker has said that it keeps an event.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Receipt {
    event_id: Uuid,
    event_type: String,
    stream_sequence: i64,
}

/// Where a committed event is: published, or still in the outbox; the relay may have sent it without having noted it yet.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(super) struct Place {
    event_id: Uuid,
    stream_sequence: i64,
    stream_epoch: i64,
    /// Its receipt was there at the snapshot's moment.
    counted: bool,
}

pub(super) async fn published(connection: &mut PgConnection, reach: Reach) -> Result<Vec<Published>, sqlx::Error> {
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
        .bind(reach.hours())
        .fetch_all(&mut *connection)
        .await?;
        // A void receipt is of no life of a stream.
        let receipts: Vec<(i64, i64, i64)> = sqlx::query_as(AssertSqlSafe(format!(
            "select case when v.event_id is null then stream_epoch else 0 end, stream_sequence / $2, count(*)
            from {schema}.outbox_published p
            left join {schema}.void_receipt v on v.event_id = p.event_id
            where stream = $1
            group by 1, 2"
        )))
        .bind(stream)
        .bind(PAGE)
        .fetch_all(&mut *connection)
        .await?;
        let receipts = receipts.into_iter().map(|(epoch, page, count)| ((epoch, page), count)).collect();
        let at = sqlx::query_scalar("select now()").fetch_one(&mut *connection).await?;
        all.push(Published { stream, schema, receipts, unaccounted, at });
    }
    Ok(all)
}

/// `floors` are from before the snapshot, `published` from the snapshot. The connection reads what has become of it since:
/// what was committed stays so.
pub(super) async fn check(
    broker: &jetstream::Context,
    connection: &mut PgConnection,
    published: Vec<Published>,
    floors: &[Floor],
    options: &Options,
) -> Result<[Verdict; 4], AuditError> {
    let [mut missing, mut uncommitted, mut lost, mut never_had] = std::array::from_fn(|_| Violations::default());
    let young = acknowledged::young(connection, options.reach()).await?;
    for mut service in published {
        let mut pages = Pages::open(broker, service.stream).await?;
        let mut receipts = service.receipts_of(pages.epoch);
        let last = receipts.keys().next_back().copied();
        while let Some(page) = pages.next().await? {
            let places = service.places(connection, &page).await?;
            let counted = receipts.remove(&page.number).unwrap_or_default();
            // What was published meanwhile is behind the last receipt of the snapshot, and could hide that one is missing.
            if Some(page.number) >= last || counted != page.found(&places) {
                let receipts = service.receipts_on(connection, &page).await?;
                page.missing(service.stream, &receipts, &options.deleted, &mut missing);
            }
            let unknown = page.unknown(&places);
            if !unknown.is_empty() {
                uncommitted_of(service.stream, &unknown, service.kept_from(connection).await?, &mut uncommitted);
            }
            service.unaccounted.retain(|event| !page.has(event.event_id));
            acknowledged::never_had(connection, service.stream, &page, floors, young, &mut never_had).await?;
        }
        for number in receipts.into_keys() {
            let page = pages.empty(number);
            page.missing(
                service.stream,
                &service.receipts_on(connection, &page).await?,
                &options.deleted,
                &mut missing,
            );
        }
        service.lost(&mut lost);
    }
    Ok([
        Verdict::new(
            "published_in_stream",
            "Every event that is marked as published is in its stream where its receipt says, \
             unless the stream has aged it out or was re-created since.",
            missing,
        ),
        Verdict::new(
            "stream_only_committed",
            "Every event in a stream comes out of a committed transaction.",
            uncommitted,
        ),
        Verdict::new(
            "journal_published",
            "Every event of which a journal tells waits in an outbox, or has a receipt, or is in its stream \
             (of the latest).",
            lost,
        ),
        Verdict::new(
            "acknowledged_was_had",
            "Every event that a consumer has acknowledged is in its inbox or a dead letter (of the latest).",
            never_had,
        ),
    ])
}

impl Published {
    /// How many receipts there are of each page in this life of the stream.
    fn receipts_of(&self, epoch: i64) -> BTreeMap<i64, i64> {
        let of_this = self.receipts.iter().filter(|((of, _), _)| *of == epoch);
        of_this.map(|((_, page), count)| (*page, *count)).collect()
    }

    /// Where the page's events are.
    pub(super) async fn places(
        &self,
        connection: &mut PgConnection,
        page: &Page,
    ) -> Result<HashMap<Uuid, Place>, sqlx::Error> {
        let schema = self.schema;
        let ids: Vec<Uuid> = page.messages.iter().filter_map(|stored| stored.event_id).collect();
        let places: Vec<Place> = sqlx::query_as(AssertSqlSafe(format!(
            "select p.event_id, stream_sequence, case when v.event_id is null then stream_epoch else 0 end as stream_epoch,
                published_at <= $2 as counted
            from {schema}.outbox_published p
            left join {schema}.void_receipt v on v.event_id = p.event_id
            where p.event_id = any($1)
            union all
            select event_id, 0, 0, false from {schema}.outbox where event_id = any($1)"
        )))
        .bind(&ids)
        .bind(self.at)
        .fetch_all(connection)
        .await?;
        Ok(places.into_iter().map(|place| (place.event_id, place)).collect())
    }

    /// The receipts of the page that were there at the snapshot's moment.
    async fn receipts_on(&self, connection: &mut PgConnection, page: &Page) -> Result<Vec<Receipt>, sqlx::Error> {
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

    /// Below this id the receipts may have been dropped with their day. Rows of the default partition have ids of clocks that
    /// go wrong, and outlive their day.
    pub(super) async fn kept_from(&self, connection: &mut PgConnection) -> Result<Option<Uuid>, sqlx::Error> {
        let schema = self.schema;
        sqlx::query_scalar(AssertSqlSafe(format!(
            "select event_id from {schema}.outbox_published
            where tableoid <> '{schema}.outbox_published_default'::regclass
            order by event_id
            limit 1"
        )))
        .fetch_optional(connection)
        .await
    }

    /// Whether the stream has everything that was published after the last receipt: it is the same one, and has aged out
    /// nothing of it.
    pub(super) async fn is_continued_by(
        &self,
        pages: &Pages,
        connection: &mut PgConnection,
    ) -> Result<bool, sqlx::Error> {
        let select = format!("select stream_epoch, last_sequence from {}.relay_lease", self.schema);
        let (epoch, last): (i64, i64) = sqlx::query_as(AssertSqlSafe(select)).fetch_one(connection).await?;
        let state = &pages.stream.cached_info().state;
        let first = if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence };
        // A relay that has yet to run knows of no stream.
        Ok((epoch == pages.epoch || epoch == 0) && first <= last.unsigned_abs() + 1)
    }

    /// What is left when the stream has been read.
    fn lost(&self, found: &mut Violations) {
        for Unaccounted { event_id, event_type, saga_id } in &self.unaccounted {
            found.add(format!("{}: {event_type} {event_id} of saga {saga_id} is nowhere", self.stream));
        }
    }
}

impl Page {
    /// How many of the snapshot's receipts are about messages of this page, and right.
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

    fn missing(&self, stream: &str, receipts: &[Receipt], deleted: &HashSet<(String, u64)>, found: &mut Violations) {
        for Receipt { event_id, event_type, stream_sequence } in receipts {
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

    /// The messages of which the database knows nothing.
    pub(super) fn unknown(&self, places: &HashMap<Uuid, Place>) -> Vec<&Stored> {
        let is_known = |stored: &&Stored| stored.event_id.is_some_and(|id| places.contains_key(&id));
        self.messages.iter().filter(|stored| !is_known(stored)).collect()
    }
}

/// Events are committed before they are sent, so whatever is in a stream is in the database, unless its day was dropped.
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

    fn receipt((id, stream_sequence): (u128, i64)) -> Receipt {
        Receipt { event_id: Uuid::from_u128(id), event_type: "OrderCreated.v1".to_owned(), stream_sequence }
    }

    fn missing(receipts: &[(u128, i64)], page: &Page) -> u64 {
        let mut found = Violations::default();
        let receipts: Vec<Receipt> = receipts.iter().copied().map(receipt).collect();
        page.missing("ORDER", &receipts, &HashSet::from([("ORDER".to_owned(), 9)]), &mut found);
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
    fn a_receipt_whose_event_is_gone_or_replaced_is_noticed() {
        let receipts = [(1, 1), (2, 2), (3, 3)];
        assert_eq!(missing(&receipts, &page(vec![stored(1, 1), stored(2, 2), stored(3, 3)])), 0);
        assert_eq!(missing(&receipts, &page(vec![stored(1, 1), stored(3, 3)])), 1);
        assert_eq!(missing(&receipts, &page(vec![stored(1, 1), stored(2, 9), stored(3, 3)])), 1);
        let deleted = [(1, 1), (2, 9), (3, 10)];
        assert_eq!(missing(&deleted, &page(vec![stored(1, 1), stored(10, 3)])), 0);
        assert_eq!(missing(&deleted, &page(vec![stored(1, 1), stored(9, 5), stored(10, 3)])), 1);
        assert_eq!(missing(&[(1, 1), (2, 2)], &page(vec![stored(2, 2)])), 0, "the stream has aged the first out");
    }

    #[test]
    fn only_receipts_of_the_snapshot_that_name_the_very_message_are_found() {
        let page = page(vec![stored(1, 1), stored(2, 2), stored(3, 3)]);
        let found = |known: &[(u128, i64, i64, bool)]| page.found(&places(known));
        assert_eq!(found(&[(1, 1, EPOCH, true), (2, 2, EPOCH, true), (3, 3, EPOCH, true)]), 3);
        assert_eq!(
            found(&[(1, 1, EPOCH, true), (2, 3, EPOCH, true), (3, 2, EPOCH, true)]),
            1,
            "two have changed places"
        );
        assert_eq!(found(&[(1, 1, EPOCH - 1, true), (2, 2, EPOCH, false), (3, 0, 0, false)]), 0);
    }

    #[test]
    fn a_journalled_event_without_a_receipt_is_lost_unless_the_stream_has_it() {
        let event = |id| Unaccounted {
            event_id: Uuid::from_u128(id),
            event_type: "OrderCreated.v1".to_owned(),
            saga_id: Uuid::nil(),
        };
        let mut service = Published {
            stream: "ORDER",
            schema: "orders",
            receipts: HashMap::new(),
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
    fn an_event_that_nobody_committed_is_noticed() {
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
        assert_eq!(uncommitted(4, &known, Some(5)), 0, "its receipt was dropped with its day");
        assert_eq!(uncommitted(8, &known, None), 0, "nothing is kept");
    }
}
