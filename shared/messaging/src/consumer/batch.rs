//! One batch from delivery to acknowledgement.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::AckKind;
use faults::Pass;
use resilience::Permit;
use sqlx::PgPool;
use uuid::Uuid;

use super::{Consumer, held::Held, measure::Stopwatch, unread};
use crate::{
    Committed, Point, StepError,
    batch::Effect,
    dead_letter::{self, Failure},
    envelope,
    error::chain,
    metrics::{StepLabel, StepOutcome},
    silence::ANSWERS_LIMIT,
    subscription::{Ran, RawEvent},
};

/// After how long a message comes back that could not be looked at for lack of a database.
const OUTAGE_WAIT: Duration = Duration::from_millis(500);
/// How often a lost race for locks is run again before the batch goes back to the broker.
const CONTENDED_ATTEMPTS: u32 = 5;

/// The database is away: stop pulling.
pub(super) struct Outage;

/// Where a fault can hit the work on a delivery.
const POINTS: [Point; 7] = [
    Point::BeforeInboxClaim,
    Point::InStep,
    Point::GatewayCall,
    Point::AfterChargeBeforeRecord,
    Point::BeforeCommit,
    Point::AfterCommitBeforePublish,
    Point::AfterCommitBeforeAck,
];

/// Works on the messages until each is acknowledged, returned or a dead letter. Tells the broker every
/// `progress` that work goes on, also on what waits behind it.
pub(super) async fn process(consumer: &Consumer, messages: Vec<Held>, progress: Duration) -> Result<(), Outage> {
    let mut todo = vec![messages];
    while let Some(mut batch) = todo.pop() {
        let permits = admit(consumer, &mut batch).await;
        if batch.is_empty() || !survives(consumer, &batch, &todo, progress).await {
            continue;
        }
        let stopwatch = Stopwatch::start();
        let ran = run(consumer, &batch, &todo, progress).await.unwrap_or_else(Ran::failed);
        stopwatch.stop(consumer, &batch, &ran);
        match tokio::time::timeout(ANSWERS_LIMIT, settle(consumer, &batch, permits, ran))
            .await
            .unwrap_or_else(|_| Settled::Away("the database does not answer".to_owned()))
        {
            Settled::Done => {}
            Settled::Split => {
                let second = batch.split_off(batch.len() / 2);
                todo.push(second);
                todo.push(batch);
            }
            Settled::Away(error) => {
                tracing::warn!(consumer = consumer.name(), error, "the batch goes back");
                give_back(consumer, batch.iter().chain(todo.iter().flatten())).await;
                return Err(Outage);
            }
        }
    }
    Ok(())
}

/// While a fault is armed that concerns a message, the message is worked on alone: it shares its fate with no other.
pub(super) fn isolate(consumer: &Consumer, messages: Vec<Held>) -> (Vec<Held>, Vec<Held>) {
    if !consumer.bus.hooks.is_armed() {
        return (Vec::new(), messages);
    }
    let step = consumer.subscription.step;
    messages.into_iter().partition(|message| consumer.bus.hooks.concerns(&POINTS, || raw(message).subject(step)))
}

/// Asks the breaker for as many calls as there are messages; what it does not admit goes back.
async fn admit(consumer: &Consumer, batch: &mut Vec<Held>) -> Vec<Permit> {
    let permits: Vec<Permit> = batch.iter().map_while(|_| consumer.breaker.admit().ok()).collect();
    give_back(consumer, batch.drain(permits.len()..).collect::<Vec<_>>().iter()).await;
    permits
}

/// Passes the first fault point; false when the delivery ends there.
async fn survives(consumer: &Consumer, batch: &[Held], waiting: &[Vec<Held>], progress: Duration) -> bool {
    let subject = || batch.first().map(|m| raw(m).subject(consumer.subscription.step)).unwrap_or_default();
    match consumer.bus.hooks.at(Point::BeforeInboxClaim, subject).await {
        Ok(Pass::Unharmed | Pass::Decline) => true,
        Ok(Pass::Duplicate { copies }) => {
            for _ in 0..copies {
                let copy = run(consumer, batch, waiting, progress).await.and_then(|ran| ran.result);
                tracing::warn!(consumer = consumer.name(), ?copy, "delivered once more on purpose");
            }
            true
        }
        Ok(Pass::Drop) => false,
        Err(_) => {
            give_back(consumer, batch.iter()).await;
            false
        }
    }
}

enum Settled {
    Done,
    /// Somebody in the batch is bad; find out who.
    Split,
    Away(String),
}

/// Runs the step in a task of its own, which neither a panic nor a lost `select!` can harm, and
/// tells the broker meanwhile that work goes on.
async fn run(consumer: &Consumer, batch: &[Held], waiting: &[Vec<Held>], progress: Duration) -> Result<Ran, StepError> {
    for attempt in 1.. {
        let mut handler = tokio::spawn(consumer.subscription.run(&consumer.bus.hooks, batch.iter().map(raw).collect()));
        let deadline = tokio::time::sleep(consumer.policy.time_limit);
        tokio::pin!(deadline);
        let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + progress, progress);
        let ran = loop {
            tokio::select! {
                joined = &mut handler => break joined.map_err(StepError::failed)?,
                () = &mut deadline => {
                    handler.abort();
                    return Err(StepError::failed("the handler took longer than its limit"));
                }
                _ = progress.tick() => keep(consumer, batch.iter().chain(waiting.iter().flatten())).await,
            }
        };
        if !matches!(ran.result, Err(StepError::Contended(_))) || attempt >= CONTENDED_ATTEMPTS {
            return Ok(ran);
        }
        let limit = 10 * u64::from(attempt);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=limit))).await;
    }
    Err(StepError::failed("unreachable: the loop above returns"))
}

async fn settle(consumer: &Consumer, batch: &[Held], permits: Vec<Permit>, ran: Ran) -> Settled {
    if batch.len() > 1 && matches!(&ran.result, Err(error) if !matches!(error, StepError::Unavailable(_))) {
        // Of the halves, too, what cannot be read is found and becomes a dead letter.
        return Settled::Split;
    }
    if let Err(error) = unread::settle(consumer, batch, &ran.unreadable).await {
        return Settled::Away(error.to_string());
    }
    match ran.result {
        Ok(committed) => {
            tell_breaker(permits, &ran.read, &committed);
            acknowledge(consumer, batch, &ran.read, committed).await
        }
        // A fault on purpose is this event's own; the database is well.
        Err(error @ StepError::Unavailable(_)) if error.is_injected() && batch.len() == 1 => match batch.first() {
            Some(message) => failed(consumer, message, &error).await,
            None => Settled::Done,
        },
        // The consumer itself waits for the database.
        Err(error @ StepError::Unavailable(_)) => Settled::Away(chain(&error)),
        Err(error) => {
            if let (StepError::Failed(_), Some(permit)) = (&error, permits.into_iter().next()) {
                permit.failure(chain(&error));
            }
            match batch.first() {
                Some(message) => failed(consumer, message, &error).await,
                None => Settled::Done,
            }
        }
    }
}

/// Tells the breaker what each call came to. Refusals, repeats and what came too late say nothing about the
/// systems that the step calls, and neither do messages that nobody can read; their permits are just dropped.
fn tell_breaker(permits: Vec<Permit>, read: &[(usize, Uuid)], committed: &Committed) {
    // An event that the batch holds twice was one call.
    let mut failures: HashMap<Uuid, &StepError> = committed.deferred.iter().map(|(id, error)| (*id, error)).collect();
    for (permit, (_, event_id)) in permits.into_iter().zip(read) {
        match (committed.covered.get(event_id), failures.remove(event_id)) {
            (Some(Effect::Applied), _) => permit.success(),
            (None, Some(error @ (StepError::Failed(_) | StepError::Unavailable(_)))) => permit.failure(chain(error)),
            _ => permit.ignored(),
        }
    }
}

/// Acknowledges what is committed; what the step deferred is counted and comes back; what it forgot
/// comes back, too.
async fn acknowledge(consumer: &Consumer, batch: &[Held], read: &[(usize, Uuid)], committed: Committed) -> Settled {
    let subject = || batch.first().map(|m| raw(m).subject(consumer.subscription.step)).unwrap_or_default();
    if !matches!(consumer.bus.hooks.at(Point::AfterCommitBeforeAck, subject).await, Ok(Pass::Unharmed)) {
        return Settled::Done;
    }
    let mut deferred: HashMap<Uuid, Option<StepError>> =
        committed.deferred.into_iter().map(|(event_id, error)| (event_id, Some(error))).collect();
    for (place, event_id) in read {
        let Some(message) = batch.get(*place) else { continue };
        if committed.covered.contains_key(event_id) {
            // A lost acknowledgement means a redelivery, and the inbox knows the event.
            message.answer(&consumer.bus, AckKind::Ack).await;
        } else if let Some(error) = deferred.get_mut(event_id) {
            match error.take() {
                Some(error) => {
                    if let Settled::Away(error) = failed(consumer, message, &error).await {
                        return Settled::Away(error);
                    }
                }
                // The batch holds the event twice, and it has failed once.
                None => give_back(consumer, [message].into_iter()).await,
            }
        } else {
            tracing::error!(consumer = consumer.name(), %event_id, "the step committed without this event");
            give_back(consumer, [message].into_iter()).await;
        }
    }
    Settled::Done
}

/// Counts the failure of one message: it comes back after a wait, or becomes a dead letter. What it
/// cannot help, a lost race or another system's outage, is not counted.
async fn failed(consumer: &Consumer, message: &Held, error: &StepError) -> Settled {
    if matches!(error, StepError::Unavailable(_) | StepError::Contended(_)) {
        let wait = longer_each_time(message, OUTAGE_WAIT, Duration::from_secs(10));
        message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
        return Settled::Done;
    }
    let step = consumer.subscription.step;
    let counted = match event_id(message) {
        Some(event_id) => count_attempt(&consumer.pool, &consumer.name(), event_id, &chain(error)).await,
        None => Ok(i32::MAX),
    };
    let attempts = match counted {
        Ok(attempts) => attempts,
        Err(error) => return Settled::Away(error.to_string()),
    };
    let last = i32::try_from(consumer.policy.retry.attempts).unwrap_or(i32::MAX);
    consumer.metrics.step_failures.get_or_create_owned(&StepLabel { step: step.name }).inc();
    let tried = |outcome| consumer.metrics.step_retries.get_or_create_owned(&StepOutcome { step: step.name, outcome });
    if attempts >= last || matches!(error, StepError::Poison(_)) {
        return match bury(consumer, message, &Failure::of_step(error, attempts)).await {
            Ok(()) => {
                tried("exhausted").inc();
                Settled::Done
            }
            Err(error) => Settled::Away(error.to_string()),
        };
    }
    tried("retried").inc();
    let bound = consumer.policy.retry.bound(attempts.unsigned_abs());
    let wait = bound.mul_f64(rand::random_range(0.0..=1.0));
    let [event_id, saga_id, correlation_id, trace_id] = ids(message);
    tracing::warn!(
        consumer = consumer.name(),
        event_id,
        saga_id,
        correlation_id,
        trace_id,
        attempts,
        ?wait,
        error = chain(error),
        "the event is tried again"
    );
    message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
    Settled::Done
}

/// `first` after the first delivery, doubling up to `longest`, with jitter.
pub(super) fn longer_each_time(message: &Held, first: Duration, longest: Duration) -> Duration {
    let delivered = message.info().map_or(1, |info| info.delivered).clamp(1, 6);
    let bound = first * 2_u32.pow(u32::try_from(delivered - 1).unwrap_or(0));
    bound.min(longest).mul_f64(rand::random_range(0.5..=1.0))
}

async fn count_attempt(pool: &PgPool, consumer: &str, event_id: Uuid, error: &str) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar!(
        "insert into delivery_attempt as a (consumer, event_id, attempts, last_error)
        values ($1, $2, 1, $3)
        on conflict (consumer, event_id) do update
        set attempts = a.attempts + 1, last_error = excluded.last_error, updated_at = now()
        returning attempts",
        consumer,
        event_id,
        error,
    )
    .fetch_one(pool)
    .await
}

/// Writes the dead letter, and only then acknowledges.
pub(super) async fn bury(consumer: &Consumer, message: &Held, failure: &Failure) -> Result<(), sqlx::Error> {
    let step = consumer.subscription.step;
    dead_letter::write(&consumer.pool, step, consumer.publisher, &raw(message), failure).await?;
    consumer.metrics.dead_letters.get_or_create_owned(&StepLabel { step: step.name }).inc();
    let [event_id, saga_id, correlation_id, trace_id] = ids(message);
    tracing::error!(
        consumer = consumer.name(), subject = %message.subject, event_id, saga_id, correlation_id, trace_id,
        attempts = failure.attempts, error = failure.error_chain, "the event is a dead letter"
    );
    message.answer(&consumer.bus, AckKind::Ack).await;
    Ok(())
}

/// Tells the broker that these are being worked on, or will be.
pub(super) async fn keep<'m>(consumer: &Consumer, messages: impl Iterator<Item = &'m Held>) {
    for message in messages {
        message.answer(&consumer.bus, AckKind::Progress).await;
    }
}

/// Returns messages to the broker, which delivers them again soon, to whichever replica asks.
pub(super) async fn give_back<'m>(consumer: &Consumer, messages: impl Iterator<Item = &'m Held>) {
    for message in messages {
        // If this is lost the broker redelivers after its ack wait.
        message.answer(&consumer.bus, AckKind::Nak(Some(OUTAGE_WAIT))).await;
    }
}

/// What a log line names a message by: event, saga, correlation and trace; empty where it does not tell.
fn ids(message: &Held) -> [&str; 4] {
    let header =
        |name| message.headers.as_ref().and_then(|headers| envelope::header(headers, name)).unwrap_or_default();
    let trace_id = header(envelope::TRACEPARENT).split('-').nth(1).unwrap_or_default();
    [header(envelope::CE_ID), header(envelope::CE_SAGAID), header("ce-correlationid"), trace_id]
}

pub(super) fn event_id(message: &Held) -> Option<Uuid> {
    let headers = message.headers.as_ref()?;
    envelope::header(headers, envelope::CE_ID)?.parse().ok()
}

fn raw(message: &Held) -> RawEvent {
    let headers = message.headers.clone().unwrap_or_default();
    let header = |name| envelope::header(&headers, name);
    let republished = header("Nats-Msg-Id") != header(envelope::CE_ID);
    let again = republished || message.info().is_ok_and(|info| info.delivered > 1);
    RawEvent::new(message.subject.to_string(), headers, message.payload.clone(), again)
}
