//! What a replay would come to: each entry's step is run as a dry run. Nothing is written but that
//! somebody has asked.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use uuid::Uuid;

use super::{
    BatchRequest, DeadLetter, Replays,
    entry::{self, By, get, note},
    replay::{MAX_REPLAYS, STEP_LIMIT, raw},
};
use crate::{
    StepError, Subscription,
    batch::Effect,
    dry_run::{Seen, Trial},
    error::chain,
    subscription::{Ran, RawEvent},
};

/// How often an entry is run again that lost a race for locks.
const ATTEMPTS: u32 = 5;

/// What a replay of one entry would come to.
#[derive(Debug, Clone)]
pub struct DryRun {
    pub dead_letter_id: Uuid,
    pub event_id: Option<Uuid>,
    pub step: String,
    pub outcome: Foreseen,
    /// The types of the events that it would publish.
    pub emits: Vec<String>,
    /// In words.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreseen {
    WouldApply,
    /// Applied before.
    Duplicate,
    /// The state that it would meet is past it.
    RefusedByState,
    /// It depends on another system's answer, and nobody asked.
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

/// Runs each entry that the same request would replay, one by one, and takes back whatever it does.
pub async fn dry_run(replays: &Replays, request: BatchRequest) -> Result<Vec<DryRun>, sqlx::Error> {
    let selected = entry::replayable(&replays.pool, &request.selection, request.limit, MAX_REPLAYS).await?;
    let mut runs = Vec::with_capacity(selected.len());
    for dead_letter_id in selected {
        // One that somebody has purged meanwhile is left out.
        if let Some(letter) = get(&replays.pool, dead_letter_id).await? {
            runs.push(one(replays, letter).await);
        }
    }
    let by = By { actor: request.actor, reason: request.reason, replay_id: None };
    let outcomes = runs.iter().map(|run| (run.dead_letter_id, format!("{}: {}", run.outcome.as_str(), run.detail)));
    let mut conn = replays.pool.acquire().await?;
    note(&mut conn, &by, "dry run", outcomes).await?;
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
    for attempt in 1.. {
        // A task of its own: a panic of the step is its failure, not the operator's.
        let trial = Trial::begin();
        let step = subscription.try_out(vec![raw.clone()], Arc::clone(&trial));
        let mut run = tokio::spawn(async move { (step.await, trial.end().await) });
        let (ran, seen) = match timeout(STEP_LIMIT, &mut run).await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => return fails(chain(&panic)),
            Err(elapsed) => {
                run.abort();
                return fails(chain(&elapsed));
            }
        };
        let lost = seen.torn || matches!(ran.result, Err(StepError::Contended(_)));
        if !lost || attempt >= ATTEMPTS {
            return verdict(ran, seen);
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=10 * u64::from(attempt)))).await;
    }
    fails("unreachable: the loop above returns".to_owned())
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
            (Foreseen::Duplicate, seen.emits, "it was applied before; a replay changes nothing".to_owned())
        }
        Some(Effect::Skipped) => (Foreseen::RefusedByState, seen.emits, refusal(seen.refusals)),
        Some(Effect::Refused) => (Foreseen::WouldApply, seen.emits, "it would be answered with a refusal".to_owned()),
        Some(Effect::Applied) => (Foreseen::WouldApply, seen.emits, "it would be applied".to_owned()),
        None => fails("the step commits without this event".to_owned()),
    }
}

fn refusal(mut reasons: Vec<String>) -> String {
    reasons.dedup();
    if reasons.is_empty() { "it is past what this event could change".to_owned() } else { reasons.join("; ") }
}

fn fails(why: String) -> Found {
    (Foreseen::WouldFail, Vec::new(), why)
}
