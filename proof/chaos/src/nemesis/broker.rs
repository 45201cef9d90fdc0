//! A broker that crashes, hangs, or loses acknowledged data.

use std::time::Duration;

use async_nats::jetstream;
use rand::{Rng, seq::IndexedRandom};
use testkit::Store;
use tokio::time::{Instant, sleep};

use super::Strike;

/// Messages are deleted among this many newest ones of a stream.
const RECENT: u64 = 100;

pub(super) async fn kill(strike: &mut Strike) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let mut nats = testbed.nats.lock().await;
    nats.kill();
    strike.hit();
    sleep(strike.length).await;
    strike.cures();
    nats.start_again().await
}

pub(super) async fn pause(strike: &mut Strike) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let mut nats = testbed.nats.lock().await;
    nats.pause()?;
    strike.hit();
    sleep(strike.length).await;
    nats.resume()
}

/// Deletes its store, with all streams and consumers.
pub(super) async fn wipe(strike: &mut Strike) -> anyhow::Result<()> {
    strike.hit();
    strike.cures();
    // Earlier deletions are irrelevant now, and must not excuse a violation.
    strike.run.tally.deleted().clear();
    strike.run.testbed.nats.lock().await.wipe().await
}

/// Rolls its whole store, or its streams without the consumers, back by some seconds.
pub(super) async fn roll_back(strike: &mut Strike, what: Store) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    let older = testbed.nats.lock().await.keep_copy().await?;
    sleep(strike.length).await;
    strike.hit();
    strike.cures();
    testbed.nats.lock().await.roll_back(&older, what).await?;
    let broker = jetstream(strike).await?;
    for service in contracts::SERVICES {
        // From here on, the sequences of deleted messages are reused.
        let last = broker.get_stream(service.stream()).await?.cached_info().state.last_sequence;
        strike.run.tally.deleted().retain(|(stream, sequence)| *stream != service.stream() || *sequence <= last);
    }
    Ok(())
}

/// JetStream over a connection without permission limits.
pub(super) async fn jetstream(strike: &Strike) -> anyhow::Result<jetstream::Context> {
    Ok(jetstream::new(strike.run.testbed.broker().await?))
}

/// Deletes durable consumers, with their acknowledgement state.
pub(super) async fn delete_consumers(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        delete_a_consumer(strike).await?;
        sleep(Duration::from_millis(strike.rng.random_range(500..1_500))).await;
    }
    Ok(())
}

pub(super) async fn delete_a_consumer(strike: &mut Strike) -> anyhow::Result<()> {
    let consumers = contracts::consumers();
    let Some(consumer) = consumers.choose(&mut strike.rng) else { return Ok(()) };
    let stream = jetstream(strike).await?.get_stream(consumer.publisher.stream()).await?;
    // It may be gone since the last time.
    if stream.delete_consumer(&consumer.step.consumer()).await.is_ok() {
        strike.hit();
    }
    Ok(())
}

/// Deletes single messages.
pub(super) async fn delete_messages(strike: &mut Strike) -> anyhow::Result<()> {
    let broker = jetstream(strike).await?;
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        for service in contracts::SERVICES {
            let stream = broker.get_stream(service.stream()).await?;
            let state = &stream.cached_info().state;
            let oldest = state.last_sequence.saturating_sub(RECENT).max(state.first_sequence);
            if state.messages == 0 || oldest > state.last_sequence {
                continue;
            }
            let sequence = strike.rng.random_range(oldest..=state.last_sequence);
            // It may be deleted even without an answer.
            strike.run.tally.deleted().insert((service.stream(), sequence));
            if stream.delete_message(sequence).await.unwrap_or(false) {
                strike.hit();
            }
        }
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}
