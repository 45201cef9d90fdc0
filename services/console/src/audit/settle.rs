//! Waiting until nothing is in flight: no saga runs, every outbox is empty, every consumer has had
//! everything.
//!
//! One look cannot tell, because an event may move from a consumer to an outbox or from an outbox
//! to a stream between two questions. Every such move ends in a stream, so the suite is quiet when
//! two looks in a row find nothing and no stream has grown in between.

use std::time::{Duration, Instant};

use async_nats::jetstream;
use sqlx::PgConnection;

use super::{
    AuditError, Verdict,
    broker::{self, StreamState},
};

const PAUSE: Duration = Duration::from_millis(200);

/// Waits for quiet, `limit` at most. What is still in flight then are the violations.
pub(super) async fn settle(
    connection: &mut PgConnection,
    broker: &jetstream::Context,
    limit: Duration,
) -> Result<Verdict, AuditError> {
    let began = Instant::now();
    let mut quiet_at: Option<Vec<u64>> = None;
    let in_flight = loop {
        let streams = broker::states(broker).await?;
        let mut in_flight = in_flight(connection, &streams).await?;
        let sequences: Vec<u64> = streams.iter().map(|s| s.last_sequence).collect();
        if in_flight.is_empty() {
            if quiet_at.as_ref() == Some(&sequences) {
                break in_flight;
            }
            if quiet_at.replace(sequences).is_some() {
                in_flight.push("the streams still grow".to_owned());
            }
        } else {
            quiet_at = None;
        }
        if began.elapsed() >= limit && !in_flight.is_empty() {
            break in_flight;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let sentence = format!(
        "Within {}, every saga ended, every outbox emptied and every consumer had everything.",
        humantime::format_duration(limit)
    );
    Ok(Verdict::new("settled", sentence, in_flight.into_iter().collect()))
}

/// Parked events do not move by themselves, so nobody waits for them here; `outbox_empty` tells.
async fn in_flight(connection: &mut PgConnection, streams: &[StreamState]) -> Result<Vec<String>, AuditError> {
    let mut found: Vec<String> = sqlx::query_scalar(
        "select format('%s sagas are %s', count(*), status)
        from saga.saga_instance
        where status in ('STARTED', 'IN_PROGRESS', 'TIMED_OUT', 'COMPENSATING')
        group by status
        union all
        select format('%s events wait in the outbox of %s', count(*), service)
        from (
            select 'order' as service from orders.outbox where state = 'PENDING'
            union all
            select 'inventory' from inventory.outbox where state = 'PENDING'
            union all
            select 'payment' from payment.outbox where state = 'PENDING'
        ) waiting
        group by service",
    )
    .fetch_all(connection)
    .await?;
    for stream in streams {
        for (consumer, missing) in &stream.behind {
            found.push(format!("{consumer} has not had {missing} events of {}", stream.name));
        }
    }
    Ok(found)
}
