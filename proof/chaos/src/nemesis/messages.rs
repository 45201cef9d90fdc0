//! Duplicated, old, damaged and unknown messages.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream, jetstream::message::PublishMessage};
use contracts::{Consumer, SERVICES};
use futures_util::StreamExt;
use rand::{Rng, seq::IndexedRandom};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::{Strike, broker};

/// Marks forged messages, and so identifies their dead letters.
pub const FORGED: &str = "forged-by-chaos";
/// Below the broker's limit, and above the size of any real event.
const OVERSIZE: usize = 900_000;

/// The defect of a forged message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgery {
    /// The body is no JSON.
    Poison,
    /// The type has a version that no step knows.
    UnknownVersion,
    /// The body is larger than any event.
    Oversize,
}

/// Repeats every second event as soon as it is published.
pub(super) async fn duplicate(strike: &mut Strike) -> anyhow::Result<()> {
    let client = strike.run.testbed.broker().await?;
    let mut events = client.subscribe("events.>").await?;
    let end = Instant::now() + strike.length;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = sleep_until(end) => None,
        };
        let Some(event) = event else { return Ok(()) };
        let original = event.headers.filter(|headers| headers.get("repeated").is_none());
        if let (Some(original), true) = (original, strike.rng.random_bool(0.5)) {
            let mut headers = without_the_brokers_own(&original);
            headers.insert("repeated", "true");
            client.publish_with_headers(event.subject, headers, event.payload).await?;
            strike.hit();
        }
    }
}

/// Repeats events from any time of the run.
pub(super) async fn old(strike: &mut Strike) -> anyhow::Result<()> {
    let broker = broker::jetstream(strike).await?;
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        for service in SERVICES {
            let stream = broker.get_stream(service.stream()).await?;
            let state = &stream.cached_info().state;
            if state.messages == 0 {
                continue;
            }
            let sequence = strike.rng.random_range(state.first_sequence..=state.last_sequence);
            // It may have been deleted.
            let Ok(stored) = stream.get_raw_message(sequence).await else { continue };
            let headers = without_the_brokers_own(&stored.headers);
            publish(&broker, stored.subject.to_string(), headers, stored.payload.to_vec()).await?;
            strike.hit();
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

pub(super) async fn forge(strike: &mut Strike, forgery: Forgery) -> anyhow::Result<()> {
    let broker = broker::jetstream(strike).await?;
    let end = Instant::now() + strike.length;
    let consumers = contracts::consumers();
    while Instant::now() < end {
        let Some(consumer) = consumers.choose(&mut strike.rng) else { break };
        let (headers, subject) = forged(strike, consumer, forgery == Forgery::UnknownVersion)?;
        let body = match forgery {
            Forgery::Oversize => format!("{{\"order_id\": \"{}\"}}", "x".repeat(OVERSIZE)),
            Forgery::UnknownVersion => "{}".to_owned(),
            Forgery::Poison => "{\"order_id\": \"not what it".to_owned(),
        };
        publish(&broker, subject, headers, body.into_bytes()).await?;
        strike.hit();
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

/// The id is older than every event of the suite, so that the audit does not take it for an uncommitted event.
fn forged(strike: &mut Strike, consumer: &Consumer, unknown: bool) -> anyhow::Result<(HeaderMap, String)> {
    let event = consumer.step.consumes().ok_or_else(|| anyhow::anyhow!("a consumer of nothing"))?;
    let mut id = *strike.run.testbed.before_all.as_bytes();
    strike.rng.fill(&mut id[10..]);
    let mut headers = HeaderMap::new();
    headers.insert("ce-specversion", "1.0");
    headers.insert("ce-id", Uuid::from_bytes(id).to_string());
    headers.insert("ce-source", format!("/services/{}", consumer.publisher));
    headers.insert("ce-type", if unknown { format!("{}.v99", event.name) } else { event.wire_name() });
    headers.insert("ce-correlationid", FORGED);
    Ok((headers, event.subject(consumer.publisher)))
}

async fn publish(
    broker: &jetstream::Context,
    subject: String,
    headers: HeaderMap,
    body: Vec<u8>,
) -> anyhow::Result<()> {
    // An id of its own, so that the broker does not recognise it.
    let id = Uuid::now_v7().to_string();
    let message = PublishMessage::build().payload(body.into()).headers(headers).message_id(id);
    broker.send_publish(subject, message).await?.await?;
    Ok(())
}

fn without_the_brokers_own(original: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, values) in original.iter().filter(|(name, _)| !name.to_string().starts_with("Nats-")) {
        values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
    }
    headers
}
