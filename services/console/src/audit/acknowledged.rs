//! What consumers have acknowledged against what they have had: a consumer acknowledges an event only when its inbox, or a
//! dead letter, is committed. Whatever is acknowledged without them is lost.

use std::collections::HashSet;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    AuditError, Verdict, Violations,
    broker::{self, STREAMS, unreadable},
    streams,
};

/// An event, by its id, and a consumer's name.
pub(super) type Delivery = (Uuid, String);

/// Events of the last hour, as far as their ids tell: older ones may be many.
const RECENT: &str = "uuid_v7_floor(now() - interval '1 hour')";

/// What the consumers of all streams have acknowledged, of what the streams still hold. Gaps above a consumer's floor are
/// not looked at, as nobody can tell them from outside.
pub(super) async fn read(broker: &jetstream::Context) -> Result<Vec<Delivery>, AuditError> {
    let mut acknowledged = Vec::new();
    for (name, _) in STREAMS {
        let stream = broker::stream(broker, name).await?;
        let asked = || format!("the consumers of stream {name}");
        let mut consumers = stream.consumers();
        let mut floors = Vec::new();
        while let Some(consumer) = consumers.try_next().await.map_err(unreadable(asked()))? {
            // Whoever else looks at the streams, such as another audit, has no inbox.
            if consumer.config.durable_name.is_some() && consumer.ack_floor.stream_sequence > 0 {
                floors.push((consumer.name, consumer.config.filter_subject, consumer.ack_floor.stream_sequence));
            }
        }
        if floors.is_empty() {
            continue;
        }
        for stored in streams::read(broker, name).await?.messages {
            let Some(event_id) = stored.event_id else { continue };
            let by =
                floors.iter().filter(|(_, subject, floor)| *subject == stored.subject && stored.sequence <= *floor);
            acknowledged.extend(by.map(|(consumer, _, _)| (event_id, consumer.clone())));
        }
    }
    Ok(acknowledged)
}

/// What consumers have had by the snapshot's moment: applied, or put aside as a dead letter; with a mark for the first
/// event that is young enough to be judged.
pub(super) async fn had(connection: &mut PgConnection) -> Result<HashSet<Delivery>, sqlx::Error> {
    let of = |schema: &str| {
        format!(
            "select event_id, consumer from {schema}.inbox where event_id > {schema}.{RECENT}
            union all
            select event_id, consumer from {schema}.dead_letter where event_id > {schema}.{RECENT}
            union all
            select {schema}.{RECENT}, ''"
        )
    };
    let queries = STREAMS.map(|(_, schema)| of(schema)).join(" union all ");
    let rows: Vec<Delivery> = sqlx::query_as(sqlx::AssertSqlSafe(queries)).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

pub(super) fn check(acknowledged: &[Delivery], had: &HashSet<Delivery>) -> Verdict {
    let recent = had.iter().filter(|(_, consumer)| consumer.is_empty()).map(|(floor, _)| *floor).max();
    let judged = acknowledged.iter().filter(|(event_id, _)| recent.is_some_and(|floor| *event_id > floor));
    let lost = judged.filter(|delivery| !had.contains(*delivery));
    let found: Violations = lost
        .map(|(event_id, consumer)| format!("{consumer} has acknowledged event {event_id} and never had it"))
        .collect();
    Verdict::new(
        "acknowledged_was_had",
        "Every event that a consumer has acknowledged is in its inbox or a dead letter (of the last hour).",
        found,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(id: u128, consumer: &str) -> Delivery {
        (Uuid::from_u128(id), consumer.to_owned())
    }

    #[test]
    fn what_was_acknowledged_and_never_had_is_lost_unless_it_is_too_old_to_tell() {
        let had = HashSet::from([delivery(10, ""), delivery(11, "order-confirm_order")]);
        let of = |acknowledged: &[Delivery]| check(acknowledged, &had).violations;
        assert_eq!(of(&[delivery(11, "order-confirm_order")]), 0);
        assert_eq!(of(&[delivery(11, "payment-process_payment")]), 1, "another consumer has had it");
        assert_eq!(of(&[delivery(12, "order-confirm_order")]), 1);
        assert_eq!(of(&[delivery(9, "order-confirm_order")]), 0, "nobody knows any more");
    }
}
