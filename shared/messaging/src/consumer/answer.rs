//! Answers to the broker about single messages: retried with backoff, returned, kept in progress, or acknowledged as a dead
//! letter.

use std::time::Duration;

use async_nats::jetstream::AckKind;
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    Consumer,
    batch::{Outage, raw},
    unacked::Unacked,
};
use crate::{
    StepError,
    dead_letter::{self, Failure},
    envelope,
    error::chain,
    metrics::{StepLabel, StepOutcome},
};

/// The redelivery delay of a message that could not be processed because the database is unavailable.
const OUTAGE_WAIT: Duration = Duration::from_millis(500);
/// The longest redelivery delay after an outage of another system, or a lost race.
const MAX_OUTAGE_WAIT: Duration = Duration::from_secs(10);

/// Counts the failure of one message, which is redelivered after a wait or becomes a dead letter. A lost race and an outage of
/// another system are not counted.
pub(super) async fn record_failure(consumer: &Consumer, message: &Unacked, error: &StepError) -> Result<(), Outage> {
    if matches!(error, StepError::Unavailable(_) | StepError::Contended(_)) {
        let wait = outage_backoff(message, OUTAGE_WAIT, MAX_OUTAGE_WAIT);
        message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
        return Ok(());
    }
    let step = consumer.subscription.step;
    let attempts = match event_id(message) {
        Some(event_id) => count_attempt(&consumer.pool, &consumer.name(), event_id, &chain(error)).await?,
        None => i32::MAX,
    };
    let last = i32::try_from(consumer.policy.retry.attempts).unwrap_or(i32::MAX);
    consumer.metrics.step_failures.get_or_create_owned(&StepLabel { step: step.name }).inc();
    let retries =
        |outcome| consumer.metrics.step_retries.get_or_create_owned(&StepOutcome { step: step.name, outcome });
    if attempts >= last || matches!(error, StepError::Poison(_)) {
        if write_dead_letter(consumer, message, &Failure::of_step(error, attempts)).await? {
            retries("exhausted").inc();
        }
        return Ok(());
    }
    retries("retried").inc();
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
        "the step failed; the event is redelivered after a wait"
    );
    message.answer(&consumer.bus, AckKind::Nak(Some(wait))).await;
    Ok(())
}

/// Exponential backoff with jitter: `first` after the first delivery, doubled for each further one, at most `longest`.
pub(super) fn outage_backoff(message: &Unacked, first: Duration, longest: Duration) -> Duration {
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

/// Writes the dead letter and then acknowledges the message, in this order. Returns false for an event that is a dead letter
/// already, which counts as a duplicate: the trigger of an owed step is published repeatedly. So does one whose insertion was not
/// confirmed.
pub(super) async fn write_dead_letter(
    consumer: &Consumer,
    message: &Unacked,
    failure: &Failure,
) -> Result<bool, sqlx::Error> {
    let step = consumer.subscription.step;
    let is_new = dead_letter::write(&consumer.pool, step, consumer.publisher, &raw(message), failure).await?;
    let counter = if is_new { &consumer.metrics.dead_letters } else { &consumer.metrics.inbox_duplicates };
    counter.get_or_create_owned(&StepLabel { step: step.name }).inc();
    let [event_id, saga_id, correlation_id, trace_id] = ids(message);
    if is_new {
        tracing::error!(
            consumer = consumer.name(), subject = %message.subject, event_id, saga_id, correlation_id, trace_id,
            attempts = failure.attempts, error = failure.error_chain, "the event is a dead letter"
        );
    } else {
        tracing::info!(consumer = consumer.name(), event_id, saga_id, "a dead letter came again and failed again");
    }
    message.answer(&consumer.bus, AckKind::Ack).await;
    Ok(is_new)
}

/// Sends progress acknowledgements: these messages are being processed or will be.
pub(super) async fn send_progress<'m>(consumer: &Consumer, messages: impl Iterator<Item = &'m Unacked>) {
    for message in messages {
        message.answer(&consumer.bus, AckKind::Progress).await;
    }
}

/// Returns messages to the broker, which soon redelivers them to any replica.
pub(super) async fn nak<'m>(consumer: &Consumer, messages: impl Iterator<Item = &'m Unacked>) {
    for message in messages {
        // If this is lost, the broker redelivers after its ack wait.
        message.answer(&consumer.bus, AckKind::Nak(Some(OUTAGE_WAIT))).await;
    }
}

/// The ids of a message for log lines: event, saga, correlation and trace; empty if a header is missing.
fn ids(message: &Unacked) -> [&str; 4] {
    let header = |name| envelope::header(&message.headers, name).unwrap_or_default();
    let trace_id = header(envelope::TRACEPARENT).split('-').nth(1).unwrap_or_default();
    [header(envelope::CE_ID), header(envelope::CE_SAGAID), header("ce-correlationid"), trace_id]
}

pub(super) fn event_id(message: &Unacked) -> Option<Uuid> {
    envelope::header(&message.headers, envelope::CE_ID)?.parse().ok()
}
