//! Messages that this build cannot read. What another build may know goes back for a while, so that a replica of that build
//! can take it: while a deployment goes on, both are there. All others, and what nobody took, become dead letters.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use async_nats::jetstream::AckKind;
use uuid::Uuid;

use super::{
    Consumer,
    batch::{bury, event_id, longer_each_time},
    held::Held,
};
use crate::{EnvelopeError, dead_letter::Failure, error::chain, inbox, lease::interval, metrics::StepLabel};

/// How soon a message comes back, at first and at the latest: to whom it then goes is up to chance.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What is to become of an event that only another build can read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A replica that can read it may still come.
    Waits,
    /// Applied by such a replica before.
    Had,
    /// It has waited for as long as it may.
    Late,
}

/// Gives back, acknowledges or buries each message that could not be read.
pub(super) async fn settle(
    consumer: &Consumer,
    batch: &[Held],
    unreadable: &[(usize, EnvelopeError)],
) -> Result<(), sqlx::Error> {
    let unread = || unreadable.iter().filter_map(|(place, error)| Some((batch.get(*place)?, error)));
    let fates = fates(consumer, unread()).await?;
    for (message, error) in unread() {
        match event_id(message).and_then(|event_id| fates.get(&event_id)) {
            Some(Fate::Waits) => hand_back(consumer, message, error).await,
            Some(Fate::Had) => {
                message.answer(&consumer.bus, AckKind::Ack).await;
            }
            Some(Fate::Late) | None => bury(consumer, message, &Failure::unreadable(error)).await?,
        }
    }
    Ok(())
}

async fn hand_back(consumer: &Consumer, message: &Held, error: &EnvelopeError) {
    let step = consumer.subscription.step.name;
    consumer.metrics.handed_back.get_or_create_owned(&StepLabel { step }).inc();
    if message.info().is_ok_and(|info| info.delivered == 1) {
        let event_id = event_id(message).unwrap_or_default();
        tracing::info!(consumer = consumer.name(), %event_id, %error, "the event goes back, for a replica of another build");
    }
    let wait = longer_each_time(message, FIRST_WAIT, LONGEST_WAIT);
    message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
}

/// Notes since when each event waits, by the database's clock. Time in which nobody could give it back, because the
/// database or the broker was away, does not count.
async fn fates<'m>(
    consumer: &Consumer,
    unread: impl Iterator<Item = (&'m Held, &'m EnvelopeError)>,
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
    let had = inbox::already_had(&mut conn, &consumer.name(), &ids).await?;
    unknown.retain(|event_id, _| !had.contains(event_id));
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
    let had = had.into_iter().map(|event_id| (event_id, Fate::Had));
    let waiting = waiting.into_iter().map(|row| (row.event_id, if row.waits { Fate::Waits } else { Fate::Late }));
    Ok(had.chain(waiting).collect())
}
