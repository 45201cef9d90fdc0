//! The reconciler: compares what the broker acknowledged with what its stream still has, and puts
//! back what is gone. It makes the broker's storage disposable; the inbox absorbs every repeat.

use futures_util::{TryStreamExt, future::BoxFuture};
use saga::Service;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Relay, RelayError, lease::Lease, publish::StreamPosition};
use crate::{envelope, outbox};

/// The events that a service has published for sagas that are not finished: only those are needed again
/// when they are lost.
pub type OpenEvents = for<'c> fn(&'c mut PgConnection, Service) -> BoxFuture<'c, Result<Vec<Uuid>, sqlx::Error>>;

pub(super) struct Reconciled {
    pub(super) position: StreamPosition,
    pub(super) republished: u64,
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
    if lost == Lost::Nothing && receipt.stream_epoch == now.epoch {
        return Ok(Reconciled { position, republished: 0 });
    }
    let republished = put_back(relay, lease, now, lost).await?;
    if lost != Lost::Nothing {
        tracing::warn!(stream, ?lost, republished, "the broker lost data; what is still needed is published again");
    }
    Ok(Reconciled { position, republished })
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
    sqlx::query_as!(
        LastReceipt,
        "select stream_epoch, last_sequence, last_event_id
        from relay_lease
        where holder = $1 and epoch = $2",
        lease.holder,
        lease.epoch,
    )
    .fetch_optional(&relay.pool)
    .await?
    .ok_or(RelayError::LeaseLost)
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
    let mut stream = relay.bus.jetstream.get_stream(stream).await.map_err(|e| RelayError::of(&e))?;
    let consumers: Vec<_> = stream.consumers().try_collect().await.map_err(|e| RelayError::of(&e))?;
    let last = stream.info().await.map_err(|e| RelayError::of(&e))?.state.last_sequence;
    match consumers.into_iter().find(|c| relay.consumers.contains(&c.name) && c.delivered.stream_sequence > last) {
        Some(consumer) => Err(RelayError::ConsumerAhead(consumer.name)),
        None => Ok(()),
    }
}

/// Puts the lost events back into the outbox and adopts the stream as it is, in one transaction that
/// only the holder of the lease can commit.
async fn put_back(relay: &Relay, lease: &Lease, now: StreamNow, lost: Lost) -> Result<u64, RelayError> {
    let mut transaction = relay.pool.begin().await?;
    let held = sqlx::query_scalar!(
        "select epoch
        from relay_lease
        where holder = $1 and epoch = $2
        for update",
        lease.holder,
        lease.epoch,
    )
    .fetch_optional(&mut *transaction)
    .await?;
    if held.is_none() {
        return Err(RelayError::LeaseLost);
    }
    let needed = needed(&mut transaction, relay, now.epoch, lost).await?;
    let mut republished = 0;
    for chunk in needed.chunks(5_000) {
        republished += outbox::republish(&mut transaction, chunk).await?;
    }
    if let Lost::After(sequence) = lost {
        void_receipts(&mut transaction, now.epoch, sequence).await?;
    }
    sqlx::query!(
        "update relay_lease
        set stream_epoch = $1, last_sequence = $2, last_event_id = null, republished = republished + $3",
        now.epoch,
        i64::try_from(now.last_sequence).unwrap_or(i64::MAX),
        i64::try_from(republished).unwrap_or(i64::MAX),
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(republished)
}

/// Their places in the stream are about to be taken by other events.
async fn void_receipts(conn: &mut PgConnection, stream_epoch: i64, after: i64) -> Result<(), sqlx::Error> {
    // The one index on sequences is a BRIN, which nothing but a bitmap scan can use.
    sqlx::query!("set local enable_bitmapscan = on").execute(&mut *conn).await?;
    sqlx::query!(
        "update outbox_published
        set stream_epoch = 0
        where stream_epoch = $1 and stream_sequence > $2",
        stream_epoch,
        after,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The lost events of sagas that are not finished, and of no saga.
async fn needed(
    conn: &mut PgConnection,
    relay: &Relay,
    stream_epoch: i64,
    lost: Lost,
) -> Result<Vec<Uuid>, RelayError> {
    let (other_epochs, after) = match lost {
        Lost::Nothing => return Ok(Vec::new()),
        Lost::OtherEpochs => (true, i64::MAX),
        Lost::After(sequence) => (false, sequence),
    };
    let open = (relay.open_events)(&mut *conn, relay.bus.service).await?;
    let mut needed = Vec::new();
    for chunk in open.chunks(5_000) {
        needed.extend(
            sqlx::query_scalar!(
                "select event_id
                from outbox_published
                where event_id = any($4)
                    and ((stream_epoch <> $1 and $2) or (stream_epoch = $1 and stream_sequence > $3))",
                stream_epoch,
                other_epochs,
                after,
                chunk,
            )
            .fetch_all(&mut *conn)
            .await?,
        );
    }
    let of_no_saga = sqlx::query_scalar!(
        "select event_id
        from outbox_published
        where saga_id is null
            and ((stream_epoch <> $1 and $2) or (stream_epoch = $1 and stream_sequence > $3))",
        stream_epoch,
        other_epochs,
        after,
    )
    .fetch_all(&mut *conn)
    .await?;
    needed.extend(of_no_saga);
    Ok(needed)
}
