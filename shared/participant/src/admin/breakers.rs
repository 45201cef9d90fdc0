//! The circuit breakers of this replica, one per step, and what became of all replicas' breakers lately.

use axum::extract::State;
use bootstrap::{Json, Path, Problem};
use messaging::breaker_change::{self, BreakerChange};
use resilience::{Breaker, Snapshot};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::Shared;

/// How many changes are shown.
const CHANGES: i64 = 50;

/// The breakers of the replica that answers, and the latest changes in all of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BreakerList {
    replica: String,
    /// False: the kill switch is thrown, and every call is admitted (`BREAKERS_ENABLED`).
    enabled: bool,
    items: Vec<BreakerBody>,
    /// The newest first.
    changes: Vec<ChangeBody>,
}

/// The breaker of one step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BreakerBody {
    step: &'static str,
    /// `closed`, `open` or `half-open`.
    state: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    why: String,
    /// While open: until it probes.
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
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyBody {
    window: u32,
    min_calls: u32,
    failure_rate: f64,
    open_for_seconds: f64,
    half_open_probes: u32,
}

/// One failed call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureBody {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    reason: String,
}

/// Since the process began.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TotalsBody {
    succeeded: u64,
    failed: u64,
    /// Refusals, repeats, and what came too late to call anybody.
    ignored: u64,
    /// Not admitted.
    rejected: u64,
    /// Outcomes of calls that were admitted in an earlier state.
    late: u64,
    opened: u64,
}

/// A breaker went from one state to another.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeBody {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    replica: String,
    step: String,
    from: String,
    to: String,
    why: String,
}

/// Every breaker of this replica, and the latest changes of all replicas' breakers
#[utoipa::path(get, path = "/api/admin/breakers", tag = "administration",
    responses((status = 200, description = "The breakers", body = BreakerList)))]
pub(crate) async fn list_breakers(State(desk): Shared) -> Result<Json<BreakerList>, Problem> {
    let participant = &desk.participant;
    let changes = breaker_change::latest(&participant.pools.http, CHANGES).await?;
    let steps = desk.subscriptions.iter().map(|s| participant.breakers.of(s.step));
    Ok(Json(BreakerList {
        replica: participant.holder.clone(),
        enabled: participant.breakers.are_enabled(),
        items: steps.map(|breaker| body(&breaker.snapshot())).collect(),
        changes: changes.into_iter().map(change).collect(),
    }))
}

/// Close a breaker of this replica and forget what opened it
#[utoipa::path(post, path = "/api/admin/breakers/{step}/reset", tag = "administration",
    params(("step" = String, Path, description = "The step's name")),
    responses((status = 200, description = "The breaker, closed", body = BreakerBody),
        (status = 404, description = "No such step in this service", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn reset_breaker(State(desk): Shared, Path(step): Path<String>) -> Result<Json<BreakerBody>, Problem> {
    let found = desk.subscriptions.iter().find(|s| s.step.name == step);
    let found = found.ok_or_else(|| Problem::not_found(format!("This service has no step {step:?}.")))?;
    let breaker: Breaker = desk.participant.breakers.of(found.step);
    breaker.reset();
    tracing::warn!(step, "an operator has reset a breaker");
    Ok(Json(body(&breaker.snapshot())))
}

fn body(snapshot: &Snapshot) -> BreakerBody {
    let now = now();
    let Snapshot { policy, counts, .. } = snapshot;
    BreakerBody {
        step: snapshot.step,
        state: snapshot.state.label(),
        since: now - snapshot.since,
        why: snapshot.why.clone(),
        retry_in_seconds: snapshot.retry_in.map(|time| time.as_secs_f64()),
        policy: PolicyBody {
            window: policy.window,
            min_calls: policy.min_calls,
            failure_rate: policy.failure_rate,
            open_for_seconds: policy.open_for.as_secs_f64(),
            half_open_probes: policy.half_open_probes,
        },
        calls: snapshot.calls,
        failures: snapshot.window.iter().filter(|failed| **failed).count(),
        failure_rate: snapshot.failure_rate,
        last_failures: snapshot
            .last_failures
            .iter()
            .map(|f| FailureBody { at: now - f.ago, reason: f.reason.clone() })
            .collect(),
        totals: TotalsBody {
            succeeded: counts.succeeded,
            failed: counts.failed,
            ignored: counts.ignored,
            rejected: counts.rejected,
            late: counts.late,
            opened: counts.opened,
        },
    }
}

fn change(row: BreakerChange) -> ChangeBody {
    ChangeBody {
        at: row.changed_at,
        replica: row.replica,
        step: row.step,
        from: row.from_state,
        to: row.to_state,
        why: row.why,
    }
}

#[expect(clippy::disallowed_methods, reason = "for people to read; breakers count monotonic time")]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
