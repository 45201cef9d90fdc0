//! The circuit breakers, one per step and replica, and their latest changes.

use std::collections::BTreeSet;

use axum::extract::State;
use bootstrap::{Json, JsonResult, Path, Problem};
use messaging::breaker_change::{self, BreakerChange};
use resilience::{Counts, Snapshot};
use saga::{Breaker, Step};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::Shared;
use crate::{
    Participant,
    replicas::{Answers, Question},
};

/// The number of changes that are shown.
const CHANGES: i64 = 50;

/// The breakers of all replicas, and the latest changes in them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BreakerList {
    /// By replica; those of the replica that handles the request first.
    items: Vec<BreakerBody>,
    /// Replicas that have not reported their breakers.
    missing: BTreeSet<String>,
    /// The newest first.
    changes: Vec<BreakerChange>,
}

/// Breakers that an operator has closed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResetBreakers {
    /// One per replica; that of the replica that handles the request first.
    items: Vec<BreakerBody>,
    /// Replicas that have not confirmed that theirs is closed.
    missing: BTreeSet<String>,
}

/// The breaker of one step in one replica.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BreakerBody {
    replica: String,
    step: String,
    /// False: breakers are disabled, and every call is admitted (`BREAKERS_ENABLED`).
    enabled: bool,
    /// `closed`, `open` or `half-open`.
    state: String,
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    why: String,
    /// While open: seconds until it probes.
    #[schema(required = true)]
    retry_in_seconds: Option<f64>,
    policy: PolicyBody,
    /// Calls in the window.
    calls: usize,
    failures: usize,
    /// 0 to 1.
    failure_rate: f64,
    /// The newest first.
    last_failures: Vec<FailureBody>,
    totals: TotalsBody,
}

/// When the breaker opens, and for how long.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PolicyBody {
    window: u32,
    min_calls: u32,
    failure_rate: f64,
    open_for_seconds: f64,
    half_open_probes: u32,
}

/// One failed call.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureBody {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    reason: String,
}

/// Counts since the process started.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TotalsBody {
    succeeded: u64,
    failed: u64,
    /// Refusals, duplicates, and deliveries that were too late for a call.
    ignored: u64,
    /// Not admitted.
    rejected: u64,
    /// Outcomes of calls that were admitted in an earlier state.
    late: u64,
    opened: u64,
}

/// Every breaker of every replica, and their latest changes
#[utoipa::path(get, path = "/api/admin/breakers", tag = "administration",
    responses((status = 200, description = "The breakers", body = BreakerList)))]
pub(crate) async fn list_breakers(State(admin): Shared) -> JsonResult<BreakerList> {
    let participant = &admin.participant;
    let changes = breaker_change::latest(&participant.pools.http, CHANGES).await?;
    let answers = participant.replicas.ask(Question::ListBreakers, own(participant, &admin.steps())).await;
    let (items, missing) = of_all(answers);
    Ok(Json(BreakerList { items, missing, changes }))
}

/// Close a step's breaker in every replica and clear its window
#[utoipa::path(post, path = "/api/admin/breakers/{step}/reset", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The breakers, closed", body = ResetBreakers),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn reset_breaker(State(admin): Shared, Path(step): Path<String>) -> JsonResult<ResetBreakers> {
    let found = admin.steps().into_iter().find(|known| known.name == step);
    let found = found.ok_or_else(|| Problem::not_found(format!("This service has no step {step:?}.")))?;
    let own = reset(&admin.participant, &[found]);
    let (items, missing) = of_all(admin.participant.replicas.ask(Question::ResetBreaker { step }, own).await);
    Ok(Json(ResetBreakers { items, missing }))
}

/// The breakers of this replica.
pub(super) fn own(participant: &Participant, steps: &[&'static Step]) -> Vec<BreakerBody> {
    steps.iter().map(|step| body(participant, participant.breakers.of(step).snapshot())).collect()
}

/// Closes breakers of this replica.
pub(super) fn reset(participant: &Participant, steps: &[&'static Step]) -> Vec<BreakerBody> {
    for step in steps {
        participant.breakers.of(step).reset();
        tracing::warn!(step = step.name, "a breaker was reset by an operator");
    }
    own(participant, steps)
}

fn of_all(answers: Answers<Vec<BreakerBody>>) -> (Vec<BreakerBody>, BTreeSet<String>) {
    (answers.given.into_iter().flat_map(|(_, breakers)| breakers).collect(), answers.missing)
}

fn body(participant: &Participant, snapshot: Snapshot) -> BreakerBody {
    let now = now();
    let Breaker { window, min_calls, failure_rate, open_for, half_open_probes } = snapshot.policy;
    let open_for_seconds = open_for.as_secs_f64();
    let Counts { succeeded, failed, ignored, rejected, late, opened } = snapshot.counts;
    let last_failures = snapshot.last_failures.into_iter().map(|f| FailureBody { at: now - f.ago, reason: f.reason });
    BreakerBody {
        replica: participant.holder.clone(),
        step: snapshot.step.to_owned(),
        enabled: snapshot.enabled,
        state: snapshot.state.label().to_owned(),
        since: now - snapshot.since,
        why: snapshot.why,
        retry_in_seconds: snapshot.retry_in.map(|time| time.as_secs_f64()),
        policy: PolicyBody { window, min_calls, failure_rate, open_for_seconds, half_open_probes },
        calls: snapshot.calls,
        failures: snapshot.window.iter().filter(|failed| **failed).count(),
        failure_rate: snapshot.failure_rate,
        last_failures: last_failures.collect(),
        totals: TotalsBody { succeeded, failed, ignored, rejected, late, opened },
    }
}

#[expect(clippy::disallowed_methods, reason = "for display only; breakers measure monotonic time")]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
