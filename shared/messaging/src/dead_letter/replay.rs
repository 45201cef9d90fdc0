//! What an operator does about a dead letter: replay it to the step that failed, or discard it.

use sqlx::PgPool;
use uuid::Uuid;

use super::{get, headers_from_json, note_action};
use crate::{Subscription, error::chain, subscription::RawEvent};

const MAX_REPLAYS: i32 = 3;

/// What became of a replay; it is written on the entry as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// Applied, or found to be applied already.
    Resolved,
    /// Failed once more, for this reason; the entry is PENDING again.
    FailedAgain(String),
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
    pool: &PgPool,
    subscriptions: &[Subscription],
    dead_letter_id: Uuid,
    actor: &str,
    reason: Option<&str>,
) -> Result<ReplayOutcome, ReplayError> {
    let letter = get(pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
    let subscription = subscriptions
        .iter()
        .find(|s| s.step.name == letter.step)
        .ok_or_else(|| ReplayError::UnknownStep(letter.step.clone()))?;
    take(pool, dead_letter_id).await?;
    let raw = RawEvent {
        subject: letter.subject,
        headers: headers_from_json(&letter.headers),
        payload: letter.payload.into(),
    };
    let outcome = apply(subscription, raw).await;
    write_back(pool, dead_letter_id, &outcome, actor, reason).await?;
    Ok(outcome)
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

async fn apply(subscription: &Subscription, raw: RawEvent) -> ReplayOutcome {
    // A task of its own: a panic of the step is its failure, not the operator's.
    let ran = match tokio::spawn(subscription.run(vec![raw])).await {
        Ok(ran) => ran,
        Err(panic) => return ReplayOutcome::FailedAgain(chain(&panic)),
    };
    if let Some((_, error)) = ran.unreadable.first() {
        return ReplayOutcome::FailedAgain(chain(error));
    }
    match ran.result {
        Err(error) => ReplayOutcome::FailedAgain(chain(&error)),
        Ok(committed) => match committed.deferred.first() {
            Some((_, error)) => ReplayOutcome::FailedAgain(chain(error)),
            None => ReplayOutcome::Resolved,
        },
    }
}

async fn write_back(
    pool: &PgPool,
    dead_letter_id: Uuid,
    outcome: &ReplayOutcome,
    actor: &str,
    reason: Option<&str>,
) -> Result<(), sqlx::Error> {
    let (status, text) = match outcome {
        ReplayOutcome::Resolved => ("RESOLVED", "resolved"),
        ReplayOutcome::FailedAgain(error) => ("PENDING", error.as_str()),
    };
    let mut transaction = pool.begin().await?;
    sqlx::query!(
        "update dead_letter
        set status = $2, notes = $3, updated_at = now()
        where dead_letter_id = $1",
        dead_letter_id,
        status,
        text,
    )
    .execute(&mut *transaction)
    .await?;
    note_action(&mut transaction, dead_letter_id, actor, "replay", reason, text).await?;
    transaction.commit().await
}

/// Gives the event up, on somebody's word.
pub async fn discard(pool: &PgPool, dead_letter_id: Uuid, actor: &str, reason: &str) -> Result<(), ReplayError> {
    let mut transaction = pool.begin().await?;
    let discarded = sqlx::query!(
        "update dead_letter
        set status = 'DISCARDED', notes = $2, updated_at = now()
        where dead_letter_id = $1
            and (status = 'PENDING' or (status = 'REPLAYED' and updated_at < now() - interval '2 minutes'))",
        dead_letter_id,
        reason,
    )
    .execute(&mut *transaction)
    .await?;
    if discarded.rows_affected() == 0 {
        drop(transaction);
        let letter = get(pool, dead_letter_id).await?.ok_or(ReplayError::NotFound)?;
        return Err(ReplayError::NotPending(letter.status));
    }
    note_action(&mut transaction, dead_letter_id, actor, "discard", Some(reason), "discarded").await?;
    transaction.commit().await?;
    Ok(())
}
