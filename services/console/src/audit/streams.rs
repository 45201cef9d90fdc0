//! The broker's streams against the receipts of the outboxes: what is marked as published is there,
//! and what is there was committed.

use std::{collections::HashSet, time::Duration};

use async_nats::jetstream::{self, consumer::pull, stream};
use futures_util::StreamExt;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    AuditError, Verdict, Violations,
    acknowledged::{self, Floor, Had},
    broker::{self, STREAMS, unreadable},
    snapshot::Reach,
};

/// What one service has published and still has to publish, at the snapshot's moment.
#[derive(Debug)]
pub(super) struct Published {
    stream: &'static str,
    receipts: Vec<Receipt>,
    /// Events that wait in the outbox; the relay may have sent them without having noted it yet.
    waiting: HashSet<Uuid>,
    /// Below this id the receipts may have been dropped with their day.
    kept_from: Option<Uuid>,
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
    stream: String,
    stream_sequence: i64,
    stream_epoch: i64,
    dated: bool,
}

/// One message of a stream, without its body.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) sequence: u64,
    pub(super) subject: String,
    pub(super) event_id: Option<Uuid>,
    pub(super) at: OffsetDateTime,
}

/// A stream as it was read: its messages in order.
pub(super) struct Contents {
    pub(super) epoch: i64,
    pub(super) first_sequence: u64,
    pub(super) messages: Vec<Stored>,
}

pub(super) async fn published(connection: &mut PgConnection, reach: Reach) -> Result<Vec<Published>, sqlx::Error> {
    let mut all = Vec::new();
    for (stream, schema) in STREAMS {
        let unaccounted: Vec<Unaccounted> = sqlx::query_as(AssertSqlSafe(format!(
            "select event_id, event_type, saga_id
            from saga.saga_step
            where service = $1 and event_id is not null and occurred_at > now() - $2 * interval '1 hour'
                and saga_id > {schema}.uuid_v7_floor(now() - interval '1 day')
                and not exists (select from {schema}.outbox o where o.event_id = saga_step.event_id)
                and not exists (select from {schema}.outbox_published p where p.event_id = saga_step.event_id)"
        )))
        .bind(stream.to_lowercase())
        .bind(reach.hours())
        .fetch_all(&mut *connection)
        .await?;
        // Rows of the default partition have ids of clocks that go wrong, and outlive their day. A void receipt is of no
        // stream that there is.
        let receipts: Vec<Receipt> = sqlx::query_as(AssertSqlSafe(format!(
            "select p.event_id, event_type, stream, stream_sequence,
                case when v.event_id is null then stream_epoch else 0 end as stream_epoch,
                p.tableoid <> '{schema}.outbox_published_default'::regclass as dated
            from {schema}.outbox_published p
            left join {schema}.void_receipt v on v.event_id = p.event_id"
        )))
        .fetch_all(&mut *connection)
        .await?;
        let waiting: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(format!("select event_id from {schema}.outbox")))
            .fetch_all(&mut *connection)
            .await?;
        let at = sqlx::query_scalar("select now()").fetch_one(&mut *connection).await?;
        let kept_from = receipts.iter().filter(|r| r.dated).map(|r| r.event_id).min();
        let waiting = waiting.into_iter().collect();
        all.push(Published { stream, receipts, waiting, kept_from, unaccounted, at });
    }
    Ok(all)
}

/// `floors` are from before the snapshot, `published` and `had` from the snapshot.
pub(super) async fn check(
    broker: &jetstream::Context,
    published: &[Published],
    floors: &[Floor],
    had: &Had,
    deleted: &HashSet<(String, u64)>,
) -> Result<[Verdict; 4], AuditError> {
    let [mut missing, mut uncommitted, mut lost, mut never_had] = std::array::from_fn(|_| Violations::default());
    for service in published {
        let contents = read(broker, service.stream).await?;
        service.missing(&contents, deleted, &mut missing);
        service.uncommitted(&contents, &mut uncommitted);
        service.lost(&contents, &mut lost);
        acknowledged::never_had(service.stream, &contents, floors, had, &mut never_had);
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
    fn missing(&self, contents: &Contents, deleted: &HashSet<(String, u64)>, found: &mut Violations) {
        let first = contents.first_sequence;
        for receipt in self.receipts.iter().filter(|r| r.stream == self.stream && r.stream_epoch == contents.epoch) {
            let Receipt { event_id, event_type, stream_sequence, .. } = receipt;
            let sequence = u64::try_from(*stream_sequence).unwrap_or(0);
            if sequence < first {
                continue;
            }
            let at = contents.messages.binary_search_by_key(&sequence, |stored| stored.sequence);
            match at.ok().and_then(|at| contents.messages.get(at)) {
                Some(stored) if stored.event_id == Some(*event_id) => {}
                Some(stored) => found.add(format!(
                    "{} {sequence} should be {event_type} {event_id}, but is {}",
                    self.stream,
                    name(stored.event_id)
                )),
                None if deleted.contains(&(self.stream.to_owned(), sequence)) => {}
                None => found.add(format!("{} {sequence} is gone: {event_type} {event_id}", self.stream)),
            }
        }
    }

    fn uncommitted(&self, contents: &Contents, found: &mut Violations) {
        // Events are committed before they are sent, but this snapshot may be older than both.
        const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
        let Some(kept_from) = self.kept_from else { return };
        let known: HashSet<Uuid> = self.receipts.iter().map(|r| r.event_id).collect();
        for stored in contents.messages.iter().filter(|stored| stored.at < self.at - CLOCK_TOLERANCE) {
            let committed =
                stored.event_id.is_some_and(|id| id < kept_from || known.contains(&id) || self.waiting.contains(&id));
            if !committed {
                found.add(format!("{} {}: {}", self.stream, stored.sequence, name(stored.event_id)));
            }
        }
    }

    fn lost(&self, contents: &Contents, found: &mut Violations) {
        // There are none as a rule, and then there is nothing to look for.
        let sought = if self.unaccounted.is_empty() { &[][..] } else { &contents.messages };
        let stored: HashSet<Uuid> = sought.iter().filter_map(|stored| stored.event_id).collect();
        let nowhere = self.unaccounted.iter().filter(|event| !stored.contains(&event.event_id));
        for Unaccounted { event_id, event_type, saga_id } in nowhere {
            found.add(format!("{}: {event_type} {event_id} of saga {saga_id} is nowhere", self.stream));
        }
    }
}

/// The ids of all events that a stream has now.
pub(crate) async fn event_ids(broker: &jetstream::Context, name: &'static str) -> Result<Vec<Uuid>, AuditError> {
    Ok(read(broker, name).await?.messages.into_iter().filter_map(|stored| stored.event_id).collect())
}

fn name(event_id: Option<Uuid>) -> String {
    event_id.map_or_else(|| "a message without an event id".to_owned(), |id| format!("event {id}"))
}

/// Reads the headers of all messages that the stream has now, in one ordered pass.
async fn read(broker: &jetstream::Context, name: &'static str) -> Result<Contents, AuditError> {
    let before = broker::stream(broker, name).await?;
    let mut messages = Vec::new();
    if before.cached_info().state.messages > 0 {
        read_messages(&before, before.cached_info().state.last_sequence, &mut messages).await?;
    }
    let after = broker::stream(broker, name).await?;
    let (before, after) = (before.cached_info(), after.cached_info());
    if broker::epoch(before) != broker::epoch(after) {
        return Err(unreadable(format!("stream {name}"))("it was re-created while it was read"));
    }
    Ok(Contents { epoch: broker::epoch(after), first_sequence: after.state.first_sequence, messages })
}

async fn read_messages(
    stream: &stream::Stream,
    last_sequence: u64,
    messages: &mut Vec<Stored>,
) -> Result<(), AuditError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let asked = || format!("the messages of stream {}", stream.cached_info().config.name);
    let consumer = stream
        // The auditor may only create consumers whose name is in the request's subject, so it has one.
        .create_consumer(pull::OrderedConfig {
            name: Some(format!("auditor-{}", uuid::Uuid::now_v7())),
            headers_only: true,
            ..Default::default()
        })
        .await
        .map_err(unreadable(asked()))?;
    let mut incoming = consumer.messages().await.map_err(unreadable(asked()))?;
    loop {
        let next = tokio::time::timeout(PATIENCE, incoming.next()).await.map_err(unreadable(asked()))?;
        let Some(message) = next.transpose().map_err(unreadable(asked()))? else { break };
        let info = message.info().map_err(|source| AuditError::Broker { asked: asked(), source })?;
        let event_id = message.headers.as_ref().and_then(|headers| headers.get("ce-id"));
        messages.push(Stored {
            sequence: info.stream_sequence,
            subject: message.subject.to_string(),
            event_id: event_id.and_then(|id| id.as_str().parse().ok()),
            at: info.published,
        });
        if info.stream_sequence >= last_sequence || info.pending == 0 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stored(sequence: u64, id: u128) -> Stored {
        let subject = "events.order.OrderCreated".to_owned();
        Stored { sequence, subject, event_id: Some(Uuid::from_u128(id)), at: OffsetDateTime::UNIX_EPOCH }
    }

    fn contents(messages: Vec<Stored>) -> Contents {
        Contents { epoch: 7, first_sequence: messages.first().map_or(1, |m| m.sequence), messages }
    }

    fn published(receipts: &[(u128, i64, i64)], waiting: &[u128]) -> Published {
        let receipt = |&(id, stream_sequence, stream_epoch): &(u128, i64, i64)| Receipt {
            event_id: Uuid::from_u128(id),
            event_type: "OrderCreated.v1".to_owned(),
            stream: "ORDER".to_owned(),
            stream_sequence,
            stream_epoch,
            dated: true,
        };
        Published {
            stream: "ORDER",
            receipts: receipts.iter().map(receipt).collect(),
            waiting: waiting.iter().copied().map(Uuid::from_u128).collect(),
            kept_from: receipts.iter().map(|r| Uuid::from_u128(r.0)).min(),
            unaccounted: Vec::new(),
            at: OffsetDateTime::UNIX_EPOCH + 10 * SECOND,
        }
    }

    fn missing(published: &Published, contents: &Contents) -> u64 {
        let mut found = Violations::default();
        published.missing(contents, &HashSet::from([("ORDER".to_owned(), 9)]), &mut found);
        found.count
    }

    fn uncommitted(published: &Published, contents: &Contents) -> u64 {
        let mut found = Violations::default();
        published.uncommitted(contents, &mut found);
        found.count
    }

    #[test]
    fn a_receipt_whose_event_is_gone_or_replaced_is_noticed() {
        let receipts = published(&[(1, 1, 7), (2, 2, 7), (3, 3, 7)], &[]);
        assert_eq!(missing(&receipts, &contents(vec![stored(1, 1), stored(2, 2), stored(3, 3)])), 0);
        assert_eq!(missing(&receipts, &contents(vec![stored(1, 1), stored(3, 3)])), 1);
        assert_eq!(missing(&receipts, &contents(vec![stored(1, 1), stored(2, 9), stored(3, 3)])), 1);
        let deleted = published(&[(1, 1, 7), (2, 9, 7), (3, 10, 7)], &[]);
        assert_eq!(missing(&deleted, &contents(vec![stored(1, 1), stored(10, 3)])), 0);
        assert_eq!(missing(&deleted, &contents(vec![stored(1, 1), stored(9, 5), stored(10, 3)])), 1);
    }

    #[test]
    fn what_the_stream_aged_out_or_had_in_another_life_is_not_missing() {
        assert_eq!(missing(&published(&[(1, 1, 7), (2, 2, 7)], &[]), &contents(vec![stored(2, 2)])), 0);
        assert_eq!(missing(&published(&[(1, 1, 6)], &[]), &contents(vec![stored(1, 5)])), 0);
    }

    #[test]
    fn a_journalled_event_without_a_receipt_is_lost_unless_the_stream_has_it() {
        let event = |id| Unaccounted {
            event_id: Uuid::from_u128(id),
            event_type: "OrderCreated.v1".to_owned(),
            saga_id: Uuid::nil(),
        };
        let service = Published { unaccounted: vec![event(5), event(6)], ..published(&[], &[]) };
        let mut found = Violations::default();
        service.lost(&contents(vec![stored(1, 5)]), &mut found);
        assert_eq!((found.count, found.examples[0].contains("of saga")), (1, true), "{found:?}");
    }

    #[test]
    fn an_event_that_nobody_committed_is_noticed() {
        let service = published(&[(5, 1, 7)], &[6]);
        assert_eq!(uncommitted(&service, &contents(vec![stored(1, 5), stored(2, 6)])), 0);
        assert_eq!(uncommitted(&service, &contents(vec![stored(1, 5), stored(2, 8)])), 1);
        assert_eq!(uncommitted(&service, &contents(vec![stored(1, 4)])), 0, "its receipt was dropped with its day");
        let mut later = stored(2, 8);
        later.at = service.at - SECOND;
        assert_eq!(uncommitted(&service, &contents(vec![later])), 0, "it may be younger than the snapshot");
    }
}
