//! Messages that this build cannot read. Events of unknown versions are returned for a while, so that a replica of another build
//! can process them: during a deployment both builds run. All other messages, and events that no replica has processed in time,
//! become dead letters.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use async_nats::jetstream::AckKind;
use uuid::Uuid;

use super::{
    Consumer,
    answer::{event_id, outage_backoff, write_dead_letter},
    unacked::Unacked,
};
use crate::{EnvelopeError, dead_letter::Failure, error::chain, inbox, interval, metrics::StepLabel, replication};

/// The first and the longest redelivery delay. Each redelivery goes to a random replica.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What to do with an event that only another build can read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A replica that can read it may still process it.
    Waits,
    /// A replica has already processed it.
    Processed,
    /// Its waiting time has expired.
    Expired,
}

pub(super) async fn answer(
    consumer: &Consumer,
    batch: &[Unacked],
    unreadable: &[(usize, EnvelopeError)],
) -> Result<(), sqlx::Error> {
    let unread = || unreadable.iter().filter_map(|(place, error)| Some((batch.get(*place)?, error)));
    let fates = fates(consumer, unread()).await?;
    for (message, error) in unread() {
        match event_id(message).and_then(|event_id| fates.get(&event_id)) {
            Some(Fate::Waits) => nak_unknown_version(consumer, message, error).await,
            Some(Fate::Processed) => {
                message.answer(&consumer.bus, AckKind::Ack).await;
            }
            Some(Fate::Expired) | None => {
                write_dead_letter(consumer, message, &Failure::unreadable(error)).await?;
            }
        }
    }
    Ok(())
}

async fn nak_unknown_version(consumer: &Consumer, message: &Unacked, error: &EnvelopeError) {
    let step = consumer.subscription.step.name;
    consumer.metrics.handed_back.get_or_create_owned(&StepLabel { step }).inc();
    if message.info().is_ok_and(|info| info.delivered == 1) {
        let event_id = event_id(message).unwrap_or_default();
        tracing::info!(consumer = consumer.name(), %event_id, %error, "unknown version: returned for another build");
    }
    let wait = outage_backoff(message, FIRST_WAIT, LONGEST_WAIT);
    message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
}

/// Records since when each event waits, by the database's clock. Time in which it was not redelivered, because the database or
/// the broker was unavailable, does not count.
async fn fates<'m>(
    consumer: &Consumer,
    unread: impl Iterator<Item = (&'m Unacked, &'m EnvelopeError)>,
) -> Result<HashMap<Uuid, Fate>, sqlx::Error> {
    // Sorted, so that two replicas with overlapping batches cannot deadlock; each once.
    let mut unknown: BTreeMap<Uuid, String> = unread
        .filter(|(_, error)| matches!(error, EnvelopeError::UnknownVersion { .. }))
        .filter_map(|(message, error)| Some((event_id(message)?, chain(error))))
        .collect();
    if unknown.is_empty() {
        return Ok(HashMap::new());
    }
    let mut conn = consumer.pool.acquire().await?;
    let ids: Vec<Uuid> = unknown.keys().copied().collect();
    let processed = inbox::already_processed(&mut conn, &consumer.name(), &ids).await?;
    if !processed.is_empty() {
        replication::barrier(&mut conn).await?;
    }
    unknown.retain(|event_id, _| !processed.contains(event_id));
    let (ids, errors): (Vec<Uuid>, Vec<String>) = unknown.into_iter().unzip();
    let waiting = sqlx::query!(
        r#"insert into delivery_attempt as a (consumer, event_id, attempts, last_error, unread_since)
        select $1, event_id, 0, error, now()
        from unnest($2::uuid[], $3::text[]) as t (event_id, error)
        on conflict (consumer, event_id) do update
        set updated_at = now(), unread_since = case
            when a.updated_at < now() - interval '1 minute' then now()
            else coalesce(a.unread_since, now())
        end
        returning event_id, unread_since > now() - $4::interval as "waits!""#,
        consumer.name(),
        &ids,
        &errors,
        interval(consumer.settings.unknown_version_wait),
    )
    .fetch_all(&mut *conn)
    .await?;
    let processed = processed.into_iter().map(|event_id| (event_id, Fate::Processed));
    let waiting = waiting.into_iter().map(|row| (row.event_id, if row.waits { Fate::Waits } else { Fate::Expired }));
    Ok(processed.chain(waiting).collect())
}
