//! One batch from delivery to acknowledgement: admitted by the breaker, run by the step, then acknowledged, split or returned.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::jetstream::AckKind;
use faults::Pass;
use resilience::Permit;
use uuid::Uuid;

use super::{
    Consumer,
    answer::{nak, record_failure, send_progress},
    helped,
    measure::Stopwatch,
    unacked::Unacked,
    unread,
};
use crate::{
    Committed, FaultPoint, StepError,
    batch::Effect,
    contention, envelope,
    error::chain,
    response_timeout::TRANSACTION_TIMEOUT,
    subscription::{Ran, RawEvent},
};

/// The database is unavailable: the consumer stops pulling.
pub(super) struct Outage(String);

impl From<sqlx::Error> for Outage {
    fn from(error: sqlx::Error) -> Self {
        Outage(error.to_string())
    }
}

const DELIVERY_POINTS: [FaultPoint; 7] = [
    FaultPoint::BeforeInboxClaim,
    FaultPoint::InStep,
    FaultPoint::GatewayCall,
    FaultPoint::AfterChargeBeforeRecord,
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommitBeforePublish,
    FaultPoint::AfterCommitBeforeAck,
];

/// Processes the messages until each is acknowledged, returned or a dead letter. Every `progress` it sends the broker a progress
/// acknowledgement for all of them, including those that still wait.
pub(super) async fn process(consumer: &Consumer, messages: Vec<Unacked>, progress: Duration) -> Result<(), Outage> {
    let mut todo = vec![messages];
    while let Some(mut batch) = todo.pop() {
        let permits = admit(consumer, &mut batch).await;
        if batch.is_empty() || !pass_fault_point(consumer, &batch, &todo, progress).await {
            continue;
        }
        let stopwatch = Stopwatch::start();
        let ran = run(consumer, &batch, &todo, progress).await.unwrap_or_else(Ran::failed);
        stopwatch.stop(consumer, &batch, &ran);
        if batch.len() > 1 && matches!(&ran.result, Err(error) if !matches!(error, StepError::Unavailable(_))) {
            // At least one event fails. The halves are decoded again, so that unreadable messages become dead letters there.
            todo.push(batch.split_off(batch.len() / 2));
            todo.push(batch);
            continue;
        }
        let repeated = helped::repeated(&batch, &ran);
        let applied = tokio::time::timeout(TRANSACTION_TIMEOUT, apply_outcome(consumer, &batch, permits, ran)).await;
        if let Err(outage) = applied.unwrap_or_else(|_| Err(Outage("the database does not answer".to_owned()))) {
            tracing::warn!(consumer = consumer.name(), error = outage.0, "the batch is returned to the broker");
            nak(consumer, batch.iter().chain(todo.iter().flatten())).await;
            return Err(outage);
        }
        helped::count(consumer, &repeated).await;
    }
    Ok(())
}

/// Separates the messages that an armed fault concerns: each of them is processed alone, so that the fault affects no other.
pub(super) fn isolate(consumer: &Consumer, messages: Vec<Unacked>) -> (Vec<Unacked>, Vec<Unacked>) {
    if !consumer.bus.faults.is_armed() {
        return (Vec::new(), messages);
    }
    let step = consumer.subscription.step;
    messages
        .into_iter()
        .partition(|message| consumer.bus.faults.concerns(&DELIVERY_POINTS, || raw(message).subject(step)))
}

/// Gets a permit of the breaker for each message; messages without one are returned.
async fn admit(consumer: &Consumer, batch: &mut Vec<Unacked>) -> Vec<Permit> {
    let permits: Vec<Permit> = batch.iter().map_while(|_| consumer.breaker.admit().ok()).collect();
    nak(consumer, batch.drain(permits.len()..).collect::<Vec<_>>().iter()).await;
    permits
}

/// Passes the first fault point. Returns false when an injected fault ends the delivery.
async fn pass_fault_point(
    consumer: &Consumer,
    batch: &[Unacked],
    waiting: &[Vec<Unacked>],
    progress: Duration,
) -> bool {
    let subject = || batch.first().map(|m| raw(m).subject(consumer.subscription.step)).unwrap_or_default();
    match consumer.bus.faults.at(FaultPoint::BeforeInboxClaim, subject).await {
        Ok(Pass::Unharmed | Pass::Decline) => true,
        Ok(Pass::Duplicate { copies }) => {
            for _ in 0..copies {
                let copy = run(consumer, batch, waiting, progress).await.and_then(|ran| ran.result);
                tracing::warn!(consumer = consumer.name(), ?copy, "an injected fault delivered the batch again");
            }
            true
        }
        Ok(Pass::Drop) => false,
        Err(_) => {
            nak(consumer, batch.iter()).await;
            false
        }
    }
}

/// Runs the step in its own task, so that its panic does not end the consumer and a cancelled `select!` does not interrupt it;
/// meanwhile sends progress acknowledgements.
async fn run(
    consumer: &Consumer,
    batch: &[Unacked],
    waiting: &[Vec<Unacked>],
    progress: Duration,
) -> Result<Ran, StepError> {
    let mut attempt = 1;
    loop {
        let mut handler =
            tokio::spawn(consumer.subscription.run(&consumer.bus.faults, batch.iter().map(raw).collect()));
        let deadline = tokio::time::sleep(consumer.policy.time_limit);
        tokio::pin!(deadline);
        let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + progress, progress);
        let ran = loop {
            tokio::select! {
                joined = &mut handler => break joined.map_err(StepError::failed)?,
                () = &mut deadline => {
                    handler.abort();
                    return Err(StepError::failed("the handler exceeded its time limit"));
                }
                _ = progress.tick() => send_progress(consumer, batch.iter().chain(waiting.iter().flatten())).await,
            }
        };
        // After the last lost race the batch is returned to the broker.
        if !matches!(ran.result, Err(StepError::Contended(_))) || attempt >= contention::ATTEMPTS {
            return Ok(ran);
        }
        contention::race_delay(attempt).await;
        attempt += 1;
    }
}

/// Acknowledges, returns or counts each message of the batch by the outcome of the run.
async fn apply_outcome(consumer: &Consumer, batch: &[Unacked], permits: Vec<Permit>, ran: Ran) -> Result<(), Outage> {
    unread::answer(consumer, batch, &ran.unreadable).await?;
    match ran.result {
        Ok(committed) => {
            report_to_breaker(permits, &ran.read, &committed);
            acknowledge(consumer, batch, &ran.read, committed).await?;
        }
        // The consumer pauses until the database is available. An injected fault concerns only this event: the database works.
        Err(error @ StepError::Unavailable(_)) if !error.is_injected() || batch.len() > 1 => {
            return Err(Outage(chain(&error)));
        }
        Err(error) => {
            if let (StepError::Failed(_), Some(permit)) = (&error, permits.into_iter().next()) {
                permit.failure(chain(&error));
            }
            if let Some(message) = batch.first() {
                record_failure(consumer, message, &error).await?;
            }
        }
    }
    Ok(())
}

/// Reports the outcome of each call to the breaker. Refusals, duplicates, late events and unreadable messages say nothing about
/// the systems that the step calls; their permits are dropped.
fn report_to_breaker(permits: Vec<Permit>, read: &[(usize, Uuid)], committed: &Committed) {
    // An event that is twice in the batch was called for once.
    let mut failures: HashMap<Uuid, &StepError> = committed.deferred.iter().map(|(id, error)| (*id, error)).collect();
    for (permit, (_, event_id)) in permits.into_iter().zip(read) {
        match (committed.covered.get(event_id), failures.remove(event_id)) {
            (Some(Effect::Applied), _) => permit.success(),
            (None, Some(error @ (StepError::Failed(_) | StepError::Unavailable(_)))) => permit.failure(chain(error)),
            _ => permit.ignored(),
        }
    }
}

/// Acknowledges committed events. Deferred events count as failed and are redelivered; events that the step left out are
/// redelivered, too.
async fn acknowledge(
    consumer: &Consumer,
    batch: &[Unacked],
    read: &[(usize, Uuid)],
    committed: Committed,
) -> Result<(), Outage> {
    let subject = || batch.first().map(|m| raw(m).subject(consumer.subscription.step)).unwrap_or_default();
    if !matches!(consumer.bus.faults.at(FaultPoint::AfterCommitBeforeAck, subject).await, Ok(Pass::Unharmed)) {
        return Ok(());
    }
    let mut deferred: HashMap<Uuid, Option<StepError>> =
        committed.deferred.into_iter().map(|(event_id, error)| (event_id, Some(error))).collect();
    for (place, event_id) in read {
        let Some(message) = batch.get(*place) else { continue };
        if committed.covered.contains_key(event_id) {
            // If the acknowledgement is lost, the inbox recognises the redelivered event.
            message.answer(&consumer.bus, AckKind::Ack).await;
        } else if let Some(error) = deferred.get_mut(event_id) {
            match error.take() {
                Some(error) => record_failure(consumer, message, &error).await?,
                // The event is twice in the batch, and its failure is counted once.
                None => nak(consumer, [message].into_iter()).await,
            }
        } else {
            tracing::error!(consumer = consumer.name(), %event_id, "the step committed without covering this event");
            nak(consumer, [message].into_iter()).await;
        }
    }
    Ok(())
}

pub(super) fn raw(message: &Unacked) -> RawEvent {
    let headers = Arc::clone(&message.headers);
    RawEvent::new(message.subject.to_string(), headers, message.payload.clone(), is_repeated(message))
}

/// Whether the event was delivered or published before.
pub(super) fn is_repeated(message: &Unacked) -> bool {
    let header = |name| envelope::header(&message.headers, name);
    let republished = header("Nats-Msg-Id") != header(envelope::CE_ID);
    republished || message.info().is_ok_and(|info| info.delivered > 1)
}
