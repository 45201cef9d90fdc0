//! The reconciler: compares what the broker acknowledged with what its stream still has, and puts
//! back what is gone. It makes the broker's storage disposable; the inbox absorbs every repeat.

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
    silence::{all_answered, answered},
};

/// How many events are looked at, and put back, in one transaction.
const CHUNK: usize = 5_000;

/// The events that a service has published for sagas that are not finished, or owe a step: only those are needed
/// again when they are lost.
pub type OpenEvents = for<'c> fn(&'c mut PgConnection, Service) -> BoxFuture<'c, Result<Vec<Uuid>, sqlx::Error>>;

pub(super) struct Reconciled {
    pub(super) position: StreamPosition,
    pub(super) republished: u64,
    /// Whether the stream may hold events whose receipts nobody has.
    pub(super) unreceipted: bool,
}

/// Which receipts are worth nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// The stream was made anew.
    OtherEpochs,
    /// The stream ends earlier, or holds something else there.
    After(i64),
}

/// The stream as the broker describes it.
#[derive(Debug, Clone, Copy)]
struct StreamNow {
    epoch: i64,
    first_sequence: i64,
    last_sequence: u64,
}

/// The last receipt that was kept.
#[derive(Debug)]
struct LastReceipt {
    stream_epoch: i64,
    last_sequence: i64,
    last_event_id: Option<Uuid>,
}

pub(super) async fn reconcile(relay: &Relay, lease: &Lease, stream: &str) -> Result<Reconciled, RelayError> {
    let now = describe(relay, stream).await?;
    // Later than the position: if the stream is set back after this, it refuses what is published from there.
    no_consumer_ahead(relay, stream).await?;
    let receipt = last_receipt(relay, lease).await?;
    let lost = compare(relay, stream, now, &receipt).await?;
    let position = StreamPosition { epoch: now.epoch, last_sequence: now.last_sequence };
    let same_stream = receipt.stream_epoch == now.epoch;
    let receipted = match lost {
        Lost::After(sequence) => sequence,
        Lost::Nothing if same_stream => receipt.last_sequence,
        Lost::Nothing | Lost::OtherEpochs => 0,
    };
    let unreceipted = i64::try_from(now.last_sequence).is_ok_and(|last| last > receipted);
    if lost == Lost::Nothing && same_stream {
        return Ok(Reconciled { position, republished: 0, unreceipted });
    }
    let republished = put_back(relay, lease, now, lost).await?;
    adopt(relay, lease, now, lost, republished).await?;
    if lost != Lost::Nothing {
        tracing::warn!(stream, ?lost, republished, "the broker lost data; what is still needed is published again");
    }
    Ok(Reconciled { position, republished, unreceipted })
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

async fn last_receipt(relay: &Relay, lease: &Lease) -> Result<LastReceipt, RelayError> {
    let receipt = sqlx::query_as!(
        LastReceipt,
        "select stream_epoch, last_sequence, last_event_id
        from relay_lease
        where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
    );
    answered(receipt.fetch_optional(&relay.pool)).await?.ok_or(RelayError::LeaseLost)
}

async fn compare(relay: &Relay, stream: &str, now: StreamNow, receipt: &LastReceipt) -> Result<Lost, RelayError> {
    if receipt.stream_epoch == 0 {
        return Ok(Lost::Nothing);
    }
    if receipt.stream_epoch != now.epoch {
        return Ok(Lost::OtherEpochs);
    }
    let last = i64::try_from(now.last_sequence).unwrap_or(i64::MAX);
    if last < receipt.last_sequence {
        return Ok(Lost::After(last));
    }
    match receipt.last_event_id {
        Some(expected) if receipt.last_sequence >= now.first_sequence => {
            let found = event_at(relay, stream, receipt.last_sequence).await?;
            // A message that was deleted is no sign of an older store.
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

/// A consumer that has had more than the stream holds would skip as many of the events to come. Nothing is
/// published until `provision keep` has made such consumers anew. Receipts do not tell: the last ones may never have been
/// written down.
async fn no_consumer_ahead(relay: &Relay, stream: &str) -> Result<(), RelayError> {
    let consumers = consumer_list::of_stream(&relay.bus.jetstream, stream).await.map_err(|e| RelayError::of(&e))?;
    let last = relay.bus.jetstream.get_stream(stream).await.map_err(|e| RelayError::of(&e))?;
    let last = last.cached_info().state.last_sequence;
    match consumers.into_iter().find(|c| relay.consumers.contains(&c.name) && c.delivered.stream_sequence > last) {
        Some(consumer) => Err(RelayError::ConsumerAhead(consumer.name)),
        None => Ok(()),
    }
}

/// Puts the lost events back into the outbox: those of sagas that are not finished, and of no saga. A chunk is a
/// transaction, so that no number of them is too large, and whoever begins again goes on where this ended: what is back
/// already is left alone. Nothing is published meanwhile.
async fn put_back(relay: &Relay, lease: &Lease, now: StreamNow, lost: Lost) -> Result<u64, RelayError> {
    let Some(range) = LostRange::of(now, lost) else { return Ok(0) };
    let mut conn = relay.pool.acquire().await?;
    let open = answered((relay.open_events)(&mut conn, relay.bus.service)).await?;
    let mut republished = 0;
    for chunk in open.chunks(CHUNK) {
        republished += put_back_chunk(relay, &mut conn, lease, chunk, range).await?;
    }
    let mut last = Uuid::nil();
    loop {
        let page = answered(of_no_saga(&mut conn, last, range)).await?;
        let Some(end) = page.last() else { return Ok(republished) };
        last = *end;
        republished += put_back_chunk(relay, &mut conn, lease, &page, range).await?;
    }
}

/// Puts back those of these events that are lost. Only the holder of the lease can, and keeps the lease by it.
async fn put_back_chunk(
    relay: &Relay,
    conn: &mut PgConnection,
    lease: &Lease,
    events: &[Uuid],
    range: LostRange,
) -> Result<u64, RelayError> {
    all_answered(async {
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

/// From now on the stream is what it is. Receipts of what it has lost are void, because other events take their places:
/// one row says so for all of them.
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
    if answered(adopting.fetch_one(&relay.pool)).await? { Ok(()) } else { Err(RelayError::LeaseLost) }
}

/// Which receipts are of what was lost.
#[derive(Debug, Clone, Copy)]
struct LostRange {
    stream_epoch: i64,
    other_epochs: bool,
    after: i64,
}

impl LostRange {
    fn of(now: StreamNow, lost: Lost) -> Option<Self> {
        let (other_epochs, after) = match lost {
            Lost::Nothing => return None,
            Lost::OtherEpochs => (true, i64::MAX),
            Lost::After(sequence) => (false, sequence),
        };
        Some(LostRange { stream_epoch: now.epoch, other_epochs, after })
    }
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

/// The next lost events of no saga, in the order of their ids.
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
