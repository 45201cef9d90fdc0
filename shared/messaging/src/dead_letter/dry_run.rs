//! Dry runs of replays: each entry's step runs in a transaction that is rolled back. Only the actor's action is stored.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{
    BatchRequest, DeadLetter, Replays,
    entry::{self, By, get, record_actions},
    replay::{MAX_REPLAYS, REPLAY_TIMEOUT, raw},
};
use crate::{
    StepError, Subscription,
    batch::Effect,
    contention,
    dry_run::{Seen, Trial},
    error::chain,
    subscription::{Ran, RawEvent},
};

/// The predicted outcome of one entry's replay.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DryRunItem))]
pub struct DryRun {
    pub dead_letter_id: Uuid,
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub event_id: Option<Uuid>,
    pub step: String,
    pub outcome: Foreseen,
    /// The types of the events that it would publish.
    pub emits: Vec<String>,
    /// The reason, or a description of the outcome.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Foreseen {
    WouldApply,
    /// The event was applied before.
    Duplicate,
    /// The current state makes the event a no-op.
    RefusedByState,
    /// It depends on the answer of another system, which a dry run does not call.
    WouldCall,
    WouldFail,
}

impl Foreseen {
    pub const ALL: [Foreseen; 5] =
        [Foreseen::WouldApply, Foreseen::Duplicate, Foreseen::RefusedByState, Foreseen::WouldCall, Foreseen::WouldFail];

    pub const fn as_str(self) -> &'static str {
        match self {
            Foreseen::WouldApply => "would_apply",
            Foreseen::Duplicate => "duplicate",
            Foreseen::RefusedByState => "refused_by_state",
            Foreseen::WouldCall => "would_call",
            Foreseen::WouldFail => "would_fail",
        }
    }
}

/// Dry-runs each entry that the same request would replay, one after the other.
pub async fn dry_run(replays: &Replays, request: BatchRequest) -> Result<Vec<DryRun>, sqlx::Error> {
    let selected = entry::replayable(&replays.pool, &request.selection, request.limit, MAX_REPLAYS).await?;
    let mut runs = Vec::with_capacity(selected.len());
    for dead_letter_id in selected {
        // Skips entries that were deleted meanwhile.
        if let Some(letter) = get(&replays.pool, dead_letter_id).await? {
            runs.push(one(replays, letter).await);
        }
    }
    let by = By { actor: request.actor, reason: request.reason, replay_id: None };
    let outcomes = runs.iter().map(|run| (run.dead_letter_id, format!("{}: {}", run.outcome.as_str(), run.detail)));
    let mut conn = replays.pool.acquire().await?;
    record_actions(&mut conn, &by, "dry run", outcomes).await?;
    runs.iter().for_each(|run| replays.count(&run.step, "dry_run", run.outcome.as_str()));
    Ok(runs)
}

async fn one(replays: &Replays, letter: DeadLetter) -> DryRun {
    let (dead_letter_id, event_id, step) = (letter.dead_letter_id, letter.event_id, letter.step.clone());
    let (outcome, emits, detail) = match replays.step_of(&letter) {
        Ok(subscription) => foresee(subscription, &raw(letter)).await,
        Err(unknown) => (Foreseen::WouldFail, Vec::new(), unknown.to_string()),
    };
    DryRun { dead_letter_id, event_id, step, outcome, emits, detail }
}

type Found = (Foreseen, Vec<String>, String);

async fn foresee(subscription: &Subscription, raw: &RawEvent) -> Found {
    let mut attempt = 1;
    loop {
        // In its own task, so that a panic of the step fails only its entry.
        let trial = Trial::begin();
        let step = subscription.try_out(vec![raw.clone()], Arc::clone(&trial));
        let run = AbortOnDropHandle::new(tokio::spawn(async move { (step.await, trial.end().await) }));
        let (ran, seen) = match timeout(REPLAY_TIMEOUT, run).await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => return fails(chain(&panic)),
            Err(elapsed) => return fails(chain(&elapsed)),
        };
        let lost = seen.inconsistent || matches!(ran.result, Err(StepError::Contended(_)));
        if !lost || attempt >= contention::ATTEMPTS {
            return verdict(ran, seen);
        }
        contention::race_delay(attempt).await;
        attempt += 1;
    }
}

fn verdict(ran: Ran, seen: Seen) -> Found {
    if let Some((_, unreadable)) = ran.unreadable.first() {
        return fails(chain(unreadable));
    }
    if !seen.calls.is_empty() {
        return (Foreseen::WouldCall, seen.emits, seen.calls.join("; "));
    }
    let committed = match ran.result {
        Ok(committed) => committed,
        Err(error) => return fails(chain(&error)),
    };
    if let Some((_, error)) = committed.deferred.first() {
        return fails(chain(error));
    }
    match committed.covered.values().next() {
        Some(Effect::Duplicate) => {
            (Foreseen::Duplicate, seen.emits, "the event was applied before; a replay changes nothing".to_owned())
        }
        Some(Effect::Skipped) => (Foreseen::RefusedByState, seen.emits, refusal(seen.refusals)),
        Some(Effect::Refused) => {
            (Foreseen::WouldApply, seen.emits, "the event would be answered with a refusal".to_owned())
        }
        Some(Effect::Applied) => (Foreseen::WouldApply, seen.emits, "the event would be applied".to_owned()),
        None => fails("the step commits without covering this event".to_owned()),
    }
}

fn refusal(mut reasons: Vec<String>) -> String {
    reasons.dedup();
    if reasons.is_empty() { "the current state makes this event a no-op".to_owned() } else { reasons.join("; ") }
}

fn fails(why: String) -> Found {
    (Foreseen::WouldFail, Vec::new(), why)
}
