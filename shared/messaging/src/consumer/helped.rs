//! Retries that helped: events that took effect after attempts that had failed. They are read after the acknowledgement, and only
//! for deliveries that may have failed before, so usually no statement runs.

use uuid::Uuid;

use super::{Consumer, batch::is_repeated, unacked::Unacked};
use crate::{batch::Effect, envelope, metrics::StepLabel, response_timeout::statement_timeout, subscription::Ran};

/// The messages delivered again that took effect now, each with its event's id.
pub(super) fn repeated<'b>(batch: &'b [Unacked], ran: &Ran) -> Vec<(Uuid, &'b Unacked)> {
    let Ok(committed) = &ran.result else { return Vec::new() };
    let took_effect = |event_id| committed.covered.get(event_id).is_some_and(|effect| *effect != Effect::Duplicate);
    let effective = ran.read.iter().filter(|(_, event_id)| took_effect(event_id));
    let messages = effective.filter_map(|(place, event_id)| Some((*event_id, batch.get(*place)?)));
    messages.filter(|(_, message)| is_repeated(message)).collect()
}

/// Counts and logs those whose attempts had failed. What cannot be read is not counted: nothing depends on it.
pub(super) async fn count(consumer: &Consumer, repeated: &[(Uuid, &Unacked)]) {
    if repeated.is_empty() {
        return;
    }
    let ids: Vec<Uuid> = repeated.iter().map(|(event_id, _)| *event_id).collect();
    let failed = sqlx::query!(
        "select event_id, attempts from delivery_attempt where consumer = $1 and event_id = any($2) and attempts > 0",
        consumer.name(),
        &ids,
    );
    let failed = match statement_timeout(failed.fetch_all(&consumer.pool)).await {
        Ok(failed) => failed,
        Err(error) => return tracing::debug!(%error, "whether retries have helped is not known"),
    };
    let step = consumer.subscription.step.name;
    consumer.metrics.step_retries_helped.get_or_create_owned(&StepLabel { step }).inc_by(failed.len() as u64);
    for row in failed {
        let message = repeated.iter().find(|(event_id, _)| *event_id == row.event_id).map(|(_, message)| message);
        let saga_id = message.and_then(|message| envelope::header(&message.headers, envelope::CE_SAGAID));
        let attempts = row.attempts.saturating_add(1);
        tracing::info!(consumer = consumer.name(), event_id = %row.event_id, saga_id, attempts, "succeeded after {attempts} attempts");
    }
}
