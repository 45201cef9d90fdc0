//! The reconciler: compares the last acknowledgement with the stream, and puts lost events back into the outbox. So the broker's
//! storage is disposable; the inbox recognises duplicates.

use futures_util::future::BoxFuture;
use saga::Service;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{
    Relay, RelayError,
    lease::{self, Lease},
    publish::StreamPosition,
};
use crate::{
    consumer_list, envelope, outbox,
    response_timeout::{statement_timeout, transaction_timeout},
};

/// How many events are checked and put back in one transaction.
const CHUNK: usize = 5_000;

/// The events that a service has published for sagas that are not finished, or owe a step: only they are needed again when they
/// are lost.
pub type OpenEvents = for<'c> fn(&'c mut PgConnection, Service) -> BoxFuture<'c, Result<Vec<Uuid>, sqlx::Error>>;

pub(super) struct Reconciled {
    pub(super) position: StreamPosition,
    pub(super) republished: u64,
    /// Whether the stream may hold events whose acknowledgements were not stored.
    pub(super) has_unrecorded_events: bool,
}

/// Which acknowledgements are void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// All of other epochs: the stream was re-created.
    OtherEpochs,
    /// All after this sequence: the stream ends there, or has other events beyond it.
    After(i64),
}

/// The stream as the broker describes it.
#[derive(Debug, Clone, Copy)]
struct StreamNow {
    epoch: i64,
    first_sequence: i64,
    last_sequence: u64,
}

#[derive(Debug)]
struct LastAck {
    stream_epoch: i64,
    last_sequence: i64,
    last_event_id: Option<Uuid>,
}

pub(super) async fn reconcile(relay: &Relay, lease: &Lease, stream: &str) -> Result<Reconciled, RelayError> {
    let now = describe(relay, stream).await?;
    // After reading the position: if the stream is restored later, it refuses messages that expect this position.
    no_consumer_ahead(relay, stream).await?;
    let ack = last_ack(relay, lease).await?;
    let lost = compare(relay, stream, now, &ack).await?;
    let position = StreamPosition { epoch: now.epoch, last_sequence: now.last_sequence };
    let same_stream = ack.stream_epoch == now.epoch;
    let recorded_through = match lost {
        Lost::After(sequence) => sequence,
        Lost::Nothing if same_stream => ack.last_sequence,
        Lost::Nothing | Lost::OtherEpochs => 0,
    };
    let has_unrecorded_events = i64::try_from(now.last_sequence).is_ok_and(|last| last > recorded_through);
    if lost == Lost::Nothing && same_stream {
        return Ok(Reconciled { position, republished: 0, has_unrecorded_events });
    }
    let republished = republish_lost(relay, lease, now, lost).await?;
    adopt(relay, lease, now, lost, republished).await?;
    if lost != Lost::Nothing {
        tracing::warn!(
            stream,
            ?lost,
            republished,
            "the broker lost data; events that are still needed are published again"
        );
    }
    Ok(Reconciled { position, republished, has_unrecorded_events })
}

async fn describe(relay: &Relay, stream: &str) -> Result<StreamNow, RelayError> {
    let stream = relay.bus.jetstream.get_stream(stream).await.map_err(|e| RelayError::of(&e))?;
    let info = stream.cached_info();
    let clamp = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Ok(StreamNow {
        epoch: i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX),
        first_sequence: clamp(info.state.first_sequence),
        last_sequence: info.state.last_sequence,
    })
}

async fn last_ack(relay: &Relay, lease: &Lease) -> Result<LastAck, RelayError> {
    let ack = sqlx::query_as!(
        LastAck,
        "select stream_epoch, last_sequence, last_event_id
        from relay_lease
        where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
    );
    statement_timeout(ack.fetch_optional(&relay.pool)).await?.ok_or(RelayError::LeaseLost)
}

async fn compare(relay: &Relay, stream: &str, now: StreamNow, ack: &LastAck) -> Result<Lost, RelayError> {
    if ack.stream_epoch == 0 {
        return Ok(Lost::Nothing);
    }
    if ack.stream_epoch != now.epoch {
        return Ok(Lost::OtherEpochs);
    }
    let last = i64::try_from(now.last_sequence).unwrap_or(i64::MAX);
    if last < ack.last_sequence {
        return Ok(Lost::After(last));
    }
    match ack.last_event_id {
        Some(expected) if ack.last_sequence >= now.first_sequence => {
            let found = event_at(relay, stream, ack.last_sequence).await?;
            // A deleted message does not mean that the stream is in an older state.
            let other = found.is_some_and(|found| found != expected);
            Ok(if other { Lost::After(now.first_sequence - 1) } else { Lost::Nothing })
        }
        _ => Ok(Lost::Nothing),
    }
}

async fn event_at(relay: &Relay, stream: &str, sequence: i64) -> Result<Option<Uuid>, RelayError> {
    use async_nats::jetstream::stream::LastRawMessageErrorKind::NoMessageFound;
    let stream = relay.bus.jetstream.get_stream_no_info(stream).await.map_err(|e| RelayError::of(&e))?;
    match stream.get_raw_message(sequence.unsigned_abs()).await {
        Ok(message) => Ok(envelope::header(&message.headers, envelope::CE_ID).and_then(|id| id.parse().ok())),
        Err(error) if error.kind() == NoMessageFound => Ok(None),
        Err(error) => Err(RelayError::of(&error)),
    }
}

/// A consumer that is ahead of the stream would skip the next events. Nothing is published until the topology's reconciler has
/// re-created such consumers. Acknowledgements do not show this: the last ones may not have been stored.
async fn no_consumer_ahead(relay: &Relay, stream: &str) -> Result<(), RelayError> {
    let consumers = consumer_list::named(&relay.bus.jetstream, stream, relay.consumers.iter().cloned()).await;
    let consumers = consumers.map_err(|e| RelayError::of(&e))?;
    let last = relay.bus.jetstream.get_stream(stream).await.map_err(|e| RelayError::of(&e))?;
    let last = last.cached_info().state.last_sequence;
    match consumers.into_iter().find(|c| c.delivered.stream_sequence > last) {
        Some(consumer) => Err(RelayError::ConsumerAhead(consumer.name)),
        None => Ok(()),
    }
}

/// Puts the lost events of unfinished sagas, and those of no saga, back into the outbox. Each chunk is a transaction, so that
/// their number is not limited, and a restart continues where this ended: events that are back already are skipped. Nothing is
/// published meanwhile.
async fn republish_lost(relay: &Relay, lease: &Lease, now: StreamNow, lost: Lost) -> Result<u64, RelayError> {
    let (other_epochs, after) = match lost {
        Lost::Nothing => return Ok(0),
        Lost::OtherEpochs => (true, i64::MAX),
        Lost::After(sequence) => (false, sequence),
    };
    let range = LostRange { stream_epoch: now.epoch, other_epochs, after };
    let mut conn = relay.pool.acquire().await?;
    let open = statement_timeout((relay.open_events)(&mut conn, relay.bus.service)).await?;
    let mut republished = 0;
    for chunk in open.chunks(CHUNK) {
        republished += republish_chunk(relay, &mut conn, lease, chunk, range).await?;
    }
    let mut last = Uuid::nil();
    loop {
        let page = statement_timeout(of_no_saga(&mut conn, last, range)).await?;
        let Some(end) = page.last() else { return Ok(republished) };
        last = *end;
        republished += republish_chunk(relay, &mut conn, lease, &page, range).await?;
    }
}

/// Puts back those of these events that are lost. This requires the lease and renews it.
async fn republish_chunk(
    relay: &Relay,
    conn: &mut PgConnection,
    lease: &Lease,
    events: &[Uuid],
    range: LostRange,
) -> Result<u64, RelayError> {
    transaction_timeout(async {
        let mut transaction = conn.begin().await?;
        if !lease::renew(&mut transaction, lease, relay.settings.relay_lease).await? {
            return Err(RelayError::LeaseLost);
        }
        let lost = lost_among(&mut transaction, events, range).await?;
        let republished = outbox::republish(&mut transaction, &lost).await?;
        transaction.commit().await?;
        Ok(republished)
    })
    .await
}

/// Stores the stream's present end as the last acknowledged position. Acknowledgements of lost events become void by one row,
/// because other events take their sequences.
async fn adopt(relay: &Relay, lease: &Lease, now: StreamNow, lost: Lost, republished: u64) -> Result<(), RelayError> {
    let valid_to = match lost {
        Lost::After(sequence) => Some(sequence),
        Lost::Nothing | Lost::OtherEpochs => None,
    };
    let adopting = sqlx::query_scalar!(
        r#"with adopted as (
            update relay_lease
            set stream_epoch = $3, last_sequence = $4, last_event_id = null, republished = republished + $5
            where holder = $1 and epoch = $2
            returning true
        ), void as (
            insert into stream_rollback (stream_epoch, last_sequence)
            select $3, $6::bigint
            from adopted
            where $6::bigint is not null
        )
        select exists (select from adopted) as "adopted!""#,
        lease.holder,
        lease.epoch,
        now.epoch,
        i64::try_from(now.last_sequence).unwrap_or(i64::MAX),
        i64::try_from(republished).unwrap_or(i64::MAX),
        valid_to,
    );
    if statement_timeout(adopting.fetch_one(&relay.pool)).await? { Ok(()) } else { Err(RelayError::LeaseLost) }
}

/// The acknowledgements of lost events.
#[derive(Debug, Clone, Copy)]
struct LostRange {
    stream_epoch: i64,
    other_epochs: bool,
    after: i64,
}

async fn lost_among(conn: &mut PgConnection, events: &[Uuid], range: LostRange) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select event_id
        from outbox_published
        where event_id = any($4)
            and ((stream_epoch <> $1 and $2) or (stream_epoch = $1 and stream_sequence > $3))",
        range.stream_epoch,
        range.other_epochs,
        range.after,
        events,
    )
    .fetch_all(conn)
    .await
}

/// The next lost events of no saga, by id.
async fn of_no_saga(conn: &mut PgConnection, after: Uuid, range: LostRange) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select event_id
        from outbox_published
        where saga_id is null and event_id > $4
            and ((stream_epoch <> $1 and $2) or (stream_epoch = $1 and stream_sequence > $3))
        order by event_id
        limit $5",
        range.stream_epoch,
        range.other_epochs,
        range.after,
        after,
        i64::try_from(CHUNK).unwrap_or(i64::MAX),
    )
    .fetch_all(conn)
    .await
}
