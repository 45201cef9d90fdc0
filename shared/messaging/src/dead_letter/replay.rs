//! An operator's actions on one dead letter: replay it to the step that failed, or discard it.

use std::{sync::Arc, time::Duration};

use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{
    Batches, DeadLetter,
    entry::{By, get, record_actions},
    headers, progress,
};
use crate::{
    EnvelopeError, Faults, Metrics, StepError, Subscription, error::chain, metrics::LetterAction, retry_contended,
    subscription::RawEvent,
};

pub(super) const MAX_REPLAYS: i32 = 3;

/// How long one replay may take: half of the time after which an entry counts as left behind by a crash.
pub(super) const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);

/// The steps and the database of one service, for replays. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Replays {
    pub pool: PgPool,
    pub subscriptions: Arc<[Subscription]>,
    pub batches: Batches,
    pub metrics: Metrics,
    pub faults: Faults,
}

/// The outcome of a replay, which is also stored on the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// Applied now or before.
    Resolved,
    /// Failed again; the entry is PENDING. Not `counted` against its replays after an outage or a lost race for locks, which say
    /// nothing about the event.
    FailedAgain { why: String, counted: bool },
}

/// Why an action was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    #[error("there is no such dead letter")]
    NotFound,
    #[error("the dead letter is {0}, not PENDING")]
    NotPending(String),
    #[error("the dead letter has been replayed {MAX_REPLAYS} times; discard it, or resolve the cause by hand")]
    TooOften,
    #[error("this service has no step {0}")]
    UnknownStep(String),
    #[error("the database is unavailable")]
    Database(#[from] sqlx::Error),
}

/// Runs the failed step on the event now. The failure has rolled back the inbox claim, so the step applies the event; if it was
/// applied after all, the inbox recognises it and nothing changes.
pub async fn replay(
    replays: &Replays,
    dead_letter_id: Uuid,
    actor: &str,
    reason: Option<&str>,
) -> Result<ReplayOutcome, ReplayError> {
    let by = By { actor: actor.to_owned(), reason: reason.map(str::to_owned), replay_id: None };
    replay_by(replays, dead_letter_id, &by).await
}

pub(super) async fn replay_by(replays: &Replays, dead_letter_id: Uuid, by: &By) -> Result<ReplayOutcome, ReplayError> {
    let letter = get(&replays.pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
    let subscription = replays.step_of(&letter)?.clone();
    claim(&replays.pool, dead_letter_id).await?;
    let raw = raw(letter);
    let outcome = match retry_contended(|| apply(replays, &subscription, raw.clone())).await {
        Ok(()) => ReplayOutcome::Resolved,
        Err(error) => {
            let counted = !matches!(error, StepError::Unavailable(_) | StepError::Contended(_));
            ReplayOutcome::FailedAgain { why: chain(&error), counted }
        }
    };
    write_back(&replays.pool, dead_letter_id, &outcome, by).await?;
    let label = if outcome == ReplayOutcome::Resolved { "resolved" } else { "failed" };
    replays.count(subscription.step.name, "replay", label);
    Ok(outcome)
}

impl Replays {
    /// Counts an action on a dead letter of the step.
    pub(super) fn count(&self, step: &str, action: &'static str, outcome: &'static str) {
        let label = LetterAction { step: step.to_owned(), action, outcome };
        self.metrics.dead_letter_actions.get_or_create_owned(&label).inc();
    }

    pub(super) fn step_of(&self, letter: &DeadLetter) -> Result<&Subscription, ReplayError> {
        let found = self.subscriptions.iter().find(|s| s.step.name == letter.step);
        found.ok_or_else(|| ReplayError::UnknownStep(letter.step.clone()))
    }
}

/// The message as it was delivered.
pub(super) fn raw(letter: DeadLetter) -> RawEvent {
    RawEvent::new(letter.subject, headers::from_json(&letter.headers), letter.payload.into(), true)
}

/// Marks the entry REPLAYED, so that it is not replayed twice at the same time. An entry in this status for two minutes was left
/// behind by a crash.
async fn claim(pool: &PgPool, dead_letter_id: Uuid) -> Result<(), ReplayError> {
    let taken = sqlx::query!(
        "update dead_letter
        set status = 'REPLAYED', replay_count = replay_count + 1, updated_at = now()
        where dead_letter_id = $1 and replay_count < $2
            and (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))",
        dead_letter_id,
        MAX_REPLAYS,
    )
    .execute(pool)
    .await?;
    if taken.rows_affected() == 1 {
        return Ok(());
    }
    let letter = get(pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
    if letter.status == "PENDING" { Err(ReplayError::TooOften) } else { Err(ReplayError::NotPending(letter.status)) }
}

/// Runs the step in its own task, so that its panic fails only the replay.
async fn apply(replays: &Replays, subscription: &Subscription, raw: RawEvent) -> Result<(), StepError> {
    let handler = AbortOnDropHandle::new(tokio::spawn(subscription.run(&replays.faults, vec![raw])));
    let ran = timeout(REPLAY_TIMEOUT, handler).await.map_err(StepError::failed)?.map_err(StepError::failed)?;
    if let Some((_, unreadable)) = ran.unreadable.into_iter().next() {
        // Another build may be able to read it.
        let of_another_build = matches!(unreadable, EnvelopeError::UnknownVersion { .. });
        let error = if of_another_build { StepError::Unavailable } else { StepError::Poison };
        return Err(error(unreadable.into()));
    }
    match ran.result?.deferred.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

async fn write_back(pool: &PgPool, dead_letter_id: Uuid, outcome: &ReplayOutcome, by: &By) -> Result<(), sqlx::Error> {
    let (status, text, refunded_replays) = match outcome {
        ReplayOutcome::Resolved => ("RESOLVED", "resolved", 0),
        ReplayOutcome::FailedAgain { why, counted } => ("PENDING", why.as_str(), i32::from(!counted)),
    };
    let mut transaction = pool.begin().await?;
    sqlx::query!(
        "update dead_letter
        set status = $2, notes = $3, replay_count = greatest(replay_count - $4, 0), updated_at = now()
        where dead_letter_id = $1 and status = 'REPLAYED'",
        dead_letter_id,
        status,
        text,
        refunded_replays,
    )
    .execute(&mut *transaction)
    .await?;
    // If the entry was meanwhile taken over as left behind, only the action is stored.
    record_actions(&mut transaction, by, "replay", [(dead_letter_id, text.to_owned())]).await?;
    if let Some(replay_id) = by.replay_id {
        progress::count_entry(&mut transaction, replay_id, Some(*outcome == ReplayOutcome::Resolved)).await?;
    }
    transaction.commit().await
}

/// Discards the entry: its event will not be applied.
pub async fn discard(replays: &Replays, dead_letter_id: Uuid, actor: &str, reason: &str) -> Result<(), ReplayError> {
    if discard_all(replays, &[dead_letter_id], actor, reason).await?.is_empty() {
        let letter = get(&replays.pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
        return Err(ReplayError::NotPending(letter.status));
    }
    Ok(())
}

/// Discards those of the entries that are undecided, and returns them.
pub async fn discard_all(
    replays: &Replays,
    dead_letter_ids: &[Uuid],
    actor: &str,
    reason: &str,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut transaction = replays.pool.begin().await?;
    let discarded = sqlx::query!(
        "update dead_letter
        set status = 'DISCARDED', notes = $2, updated_at = now()
        where dead_letter_id = any($1)
            and (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))
        returning dead_letter_id, step",
        dead_letter_ids,
        reason,
    )
    .fetch_all(&mut *transaction)
    .await?;
    let by = By { actor: actor.to_owned(), reason: Some(reason.to_owned()), replay_id: None };
    let outcomes = discarded.iter().map(|letter| (letter.dead_letter_id, "discarded".to_owned()));
    record_actions(&mut transaction, &by, "discard", outcomes).await?;
    transaction.commit().await?;
    discarded.iter().for_each(|letter| replays.count(&letter.step, "discard", "resolved"));
    Ok(discarded.into_iter().map(|letter| letter.dead_letter_id).collect())
}
