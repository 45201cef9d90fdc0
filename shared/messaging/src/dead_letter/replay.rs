//! What an operator does about one dead letter: replay it to the step that failed, or discard it.

use std::{sync::Arc, time::Duration};

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{
    Batches, DeadLetter,
    entry::{By, get, note},
    headers, progress,
};
use crate::{
    EnvelopeError, Hooks, Metrics, StepError, Subscription, error::chain, metrics::LetterAction, retry_contended,
    subscription::RawEvent,
};

pub(super) const MAX_REPLAYS: i32 = 3;

/// How long a step may work on one replay: half of the time after which an entry counts as left behind.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(60);

/// What replays run on: the steps of one service and its database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Replays {
    pub pool: PgPool,
    pub subscriptions: Arc<[Subscription]>,
    pub batches: Batches,
    pub metrics: Metrics,
    pub hooks: Hooks,
}

/// What became of a replay; it is written on the entry as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// Applied, or found to be applied already.
    Resolved,
    /// Failed once more, and the entry is PENDING again. Not `counted`: something was away, or a race for locks was
    /// lost, which says nothing about the event and takes none of its replays.
    FailedAgain { why: String, counted: bool },
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is no such dead letter")]
    NotFound,
    #[error("the dead letter is {0}, not PENDING")]
    NotPending(String),
    #[error("it has been replayed {MAX_REPLAYS} times; discard it, or mend the event's cause by hand")]
    TooOften,
    #[error("no step called {0} runs in this service")]
    UnknownStep(String),
    #[error("the database is away")]
    Database(#[from] sqlx::Error),
}

/// Runs the failed step on the event, now. The step's inbox claim was rolled back with the failure,
/// so it works at once; had the event been applied after all, the inbox says so and nothing happens.
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
    take(&replays.pool, dead_letter_id).await?;
    let raw = raw(letter);
    let outcome = match retry_contended(|| apply(replays, &subscription, raw.clone())).await {
        Ok(()) => ReplayOutcome::Resolved,
        Err(error) => {
            let counted = !matches!(error, StepError::Unavailable(_) | StepError::Contended(_));
            ReplayOutcome::FailedAgain { why: chain(&error), counted }
        }
    };
    write_back(&replays.pool, dead_letter_id, &outcome, by).await?;
    let came_to = if outcome == ReplayOutcome::Resolved { "resolved" } else { "failed" };
    replays.count(subscription.step.name, "replay", came_to);
    Ok(outcome)
}

impl Replays {
    /// Counts what somebody did about a dead letter of the step.
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

/// Marks the entry REPLAYED, so that two operators cannot replay it at the same time. One that has been so
/// for minutes was left behind by a crash.
async fn take(pool: &PgPool, dead_letter_id: Uuid) -> Result<(), ReplayError> {
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

/// Runs the step in a task of its own: its panic is its failure, not the operator's.
async fn apply(replays: &Replays, subscription: &Subscription, raw: RawEvent) -> Result<(), StepError> {
    let mut handler = tokio::spawn(subscription.run(&replays.hooks, vec![raw]));
    let ran = match tokio::time::timeout(STEP_LIMIT, &mut handler).await {
        Ok(joined) => joined.map_err(StepError::failed)?,
        Err(elapsed) => {
            handler.abort();
            return Err(StepError::failed(elapsed));
        }
    };
    if let Some((_, unreadable)) = ran.unreadable.into_iter().next() {
        // Only this build cannot read it.
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
    let (status, text, given_back) = match outcome {
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
        given_back,
    )
    .execute(&mut *transaction)
    .await?;
    // Somebody may have taken this replay for dead and decided otherwise: then only the action is kept.
    note(&mut transaction, by, "replay", [(dead_letter_id, text.to_owned())]).await?;
    if let Some(replay_id) = by.replay_id {
        let resolved = *outcome == ReplayOutcome::Resolved;
        progress::count_replay(&mut transaction, replay_id, resolved).await?;
    }
    transaction.commit().await
}

/// Gives the event up, on somebody's word.
pub async fn discard(replays: &Replays, dead_letter_id: Uuid, actor: &str, reason: &str) -> Result<(), ReplayError> {
    let mut transaction = replays.pool.begin().await?;
    let Some(step) = write_off(&mut transaction, dead_letter_id, reason).await? else {
        drop(transaction);
        let letter = get(&replays.pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
        return Err(ReplayError::NotPending(letter.status));
    };
    let by = By { actor: actor.to_owned(), reason: Some(reason.to_owned()), replay_id: None };
    note(&mut transaction, &by, "discard", [(dead_letter_id, "discarded".to_owned())]).await?;
    transaction.commit().await?;
    replays.count(&step, "discard", "resolved");
    Ok(())
}

/// Returns the entry's step; none when it cannot be given up now.
async fn write_off(conn: &mut PgConnection, entry: Uuid, reason: &str) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "update dead_letter
        set status = 'DISCARDED', notes = $2, updated_at = now()
        where dead_letter_id = $1
            and (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))
        returning step",
        entry,
        reason,
    )
    .fetch_optional(conn)
    .await
}
