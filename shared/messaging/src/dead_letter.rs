//! Dead letters: events that a step could not apply, stored in the database with the context of the failure. A replay runs only
//! the failed step, at most three times, and its outcome is stored on the entry; each action is stored with actor, time and
//! reason.

mod batch;
mod dry_run;
mod entry;
mod headers;
mod progress;
mod replay;

use saga::{Service, Step};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    EnvelopeError, StepError, TraceContext,
    envelope::{self, CE_ID, CE_SAGAID, CE_TYPE},
    error::chain,
    replication,
    subscription::RawEvent,
};

pub use batch::{BatchRequest, Batches, DEFAULT_RAMP, auto_replay, replay_batch, waves};
pub use dry_run::{DryRun, Foreseen, dry_run};
pub use entry::{Action, DeadLetter, Filter, Selection, actions, count_pending, get, list, undecided};
pub use progress::{Batch, Stop, batch, batches};
pub use replay::{ReplayError, ReplayOutcome, Replays, discard, discard_all, replay};

/// Why an event became a dead letter.
#[derive(Debug)]
pub(crate) struct Failure {
    reason: &'static str,
    pub(crate) error_chain: String,
    pub(crate) attempts: i32,
}

impl Failure {
    pub(crate) fn unreadable(error: &EnvelopeError) -> Self {
        let reason = match error {
            EnvelopeError::UnknownVersion { .. } => "unknown version",
            _ => "undecodable",
        };
        Failure { reason, error_chain: chain(error), attempts: 1 }
    }

    pub(crate) fn of_step(error: &StepError, attempts: i32) -> Self {
        let reason = match error {
            StepError::Poison(_) => "poison",
            _ => "attempts exhausted",
        };
        Failure { reason, error_chain: chain(error), attempts: attempts.max(1) }
    }
}

/// Stores the event; returns false, and changes nothing, when it was stored before: it may be delivered or published again. A
/// synchronous standby has it then, too.
pub(crate) async fn write(
    pool: &PgPool,
    step: &Step,
    source: Service,
    raw: &RawEvent,
    failure: &Failure,
) -> Result<bool, sqlx::Error> {
    // PostgreSQL cannot store a NUL in a text column.
    let header = |name: &str| envelope::header(&raw.headers, name).map(|value| value.replace('\0', "\u{fffd}"));
    let trace_id = header("traceparent").and_then(|t| t.parse().ok()).map(TraceContext::trace_id);
    let stored = sqlx::query!(
        "insert into dead_letter
            (dead_letter_id, event_id, event_type, subject, headers, payload, consumer, step, reason, error_chain,
            source_service, saga_id, correlation_id, trace_id, attempts)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        on conflict do nothing",
        Uuid::now_v7(),
        header(CE_ID).and_then(|id| id.parse::<Uuid>().ok()),
        header(CE_TYPE).unwrap_or_else(|| "unknown".to_owned()),
        raw.subject,
        headers::to_json(&raw.headers),
        raw.payload.as_ref(),
        step.consumer(),
        step.name,
        failure.reason,
        failure.error_chain,
        source.0,
        header(CE_SAGAID).and_then(|id| id.parse::<Uuid>().ok()),
        header("ce-correlationid"),
        trace_id,
        failure.attempts,
    )
    .execute(pool)
    .await?;
    let is_new = stored.rows_affected() > 0;
    if !is_new {
        let mut conn = pool.acquire().await?;
        replication::barrier(&mut conn).await?;
    }
    Ok(is_new)
}
