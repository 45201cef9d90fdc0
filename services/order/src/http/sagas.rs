//! Sagas: status, journal, and resuming compensations.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, detached};
use messaging::retry_contended;
use participant::{Bulk, Why, actor};
use saga::Status;
use saga_store::{
    compensation::{CompensationFilter, uncompensated},
    query::{self, Filter, SagaView, StepView},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::problem;
use crate::{
    App,
    compensation::{self, ResumeOutcome},
    orchestration,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SagaQuery {
    status: Option<Status>,
    /// The saga's type: `OrderFulfillment` or `OrderFulfillmentOrchestrated`.
    #[serde(rename = "type")]
    saga_type: Option<String>,
    order_id: Option<Uuid>,
    /// The `X-Correlation-Id` of the request that began the saga.
    correlation_id: Option<String>,
    /// Only sagas that began at least this many seconds ago.
    #[param(minimum = 0, maximum = 1_000_000_000)]
    older_than: Option<f64>,
}

/// A saga.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaBody {
    saga_id: Uuid,
    saga_type: String,
    order_id: Uuid,
    #[schema(value_type = Status)]
    status: String,
    /// The last forward step that was done.
    current_step: i16,
    total_steps: i16,
    #[serde(with = "time::serde::rfc3339")]
    started_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    deadline: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    completed_at: Option<OffsetDateTime>,
    /// From start to end; null while it runs.
    #[schema(required = true)]
    duration_ms: Option<i64>,
    #[schema(required = true)]
    failure_reason: Option<String>,
    #[schema(required = true)]
    failed_at_step: Option<String>,
}

/// A saga with its journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaHistory {
    #[serde(flatten)]
    saga: SagaBody,
    correlation_id: String,
    trace_id: String,
    /// The services whose receipt, the confirmation that their steps are undone, is missing.
    receipts_due: Vec<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(required = true)]
    compensation_deadline: Option<OffsetDateTime>,
    compensation_attempts: i16,
    steps: Vec<SagaStepBody>,
}

/// One entry of a saga's journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaStepBody {
    position: i32,
    step_number: i16,
    step: String,
    service: String,
    /// `FORWARD` or `COMPENSATION`.
    direction: String,
    event_type: String,
    #[schema(required = true)]
    event_id: Option<Uuid>,
    /// `COMPLETED`, `FAILED` (a refusal), `COMPENSATED` or `SKIPPED` (too late).
    status: String,
    #[serde(with = "time::serde::rfc3339")]
    occurred_at: OffsetDateTime,
    #[schema(required = true)]
    reason: Option<String>,
    /// The injected fault that hit the saga, if any.
    #[schema(required = true)]
    fault: Option<String>,
}

/// The number of sagas by status.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaSummary {
    /// Every status with its count, including zeros. COMPLETED and COMPENSATED sagas are counted among the latest 10,000 only.
    by_status: BTreeMap<&'static str, i64>,
    /// Age of the oldest saga that still runs, in seconds; null when none does.
    #[schema(required = true)]
    oldest_active_seconds: Option<f64>,
}

/// Sagas, newest first
///
/// For COMPLETED or COMPENSATED ones, a type or an age, a page has the matches among at most 5,000 sagas: it may be short, or
/// empty, and still have a next one. Sagas of an order or a correlation id, or of any other status, are found without this limit.
#[utoipa::path(get, path = "/api/sagas", tag = "sagas", params(SagaQuery, PageQuery),
    responses((status = 200, description = "A page of sagas", body = Page<SagaBody>)))]
pub(super) async fn list_sagas(
    State(app): State<App>,
    Filtered(query, page): Filtered<SagaQuery>,
) -> JsonResult<Page<SagaBody>> {
    if query.older_than.is_some_and(|s| !(0.0..=1e9).contains(&s)) {
        return Err(Problem::invalid("/older_than", "A number of seconds, 0 to 1,000,000,000."));
    }
    let filter = Filter {
        status: query.status,
        saga_type: query.saga_type.as_deref(),
        business_key: query.order_id,
        correlation_id: query.correlation_id.as_deref(),
        older_than_seconds: query.older_than,
    };
    let before = page.after()?.unwrap_or(Uuid::max());
    let takes_all = query.status.is_none() && query.saga_type.is_none() && query.older_than.is_none();
    let distance = if takes_all { page.rows() } else { page.walk() };
    let pool = &app.participant.pools.read;
    let walked = query::walk(pool, &filter, before, distance).await?;
    let Page { items: ids, next_cursor } = Page::from_walk(walked, &page, |id| *id);
    let rows = query::list(pool, &ids).await?;
    Ok(Json(Page { items: rows.iter().map(body).collect(), next_cursor }))
}

/// Counts by status, and the age of the oldest saga that still runs
#[utoipa::path(get, path = "/api/sagas/summary", tag = "sagas",
    responses((status = 200, description = "The summary", body = SagaSummary)))]
pub(super) async fn get_saga_summary(State(app): State<App>) -> JsonResult<SagaSummary> {
    let pool = &app.participant.pools.read;
    let counts: BTreeMap<String, i64> = query::counts(pool).await?.into_iter().collect();
    let of = |status: Status| (status.as_str(), counts.get(status.as_str()).copied().unwrap_or_default());
    Ok(Json(SagaSummary {
        by_status: Status::ALL.into_iter().map(of).collect(),
        oldest_active_seconds: query::oldest_active_seconds(pool).await?,
    }))
}

/// One saga with its journal
#[utoipa::path(get, path = "/api/sagas/{id}", tag = "sagas",
    params(("id" = Uuid, Path, description = "The saga's id")),
    responses((status = 200, description = "The saga", body = SagaHistory),
        (status = 404, description = "No such saga", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get_saga(State(app): State<App>, Path(id): Path<Uuid>) -> JsonResult<SagaHistory> {
    read(&app, id).await
}

/// Retry the compensation of a saga
#[utoipa::path(post, path = "/api/admin/sagas/{id}/resume", tag = "administration",
    params(("id" = Uuid, Path, description = "The saga's id")), request_body = Option<Why>,
    responses((status = 200, description = "The compensation is retried", body = SagaHistory),
        (status = 404, description = "No such saga", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is neither FAILED nor COMPENSATING", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn resume_saga(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> JsonResult<SagaHistory> {
    let why = resume_reason(&headers, why.and_then(|Json(why)| why.reason).as_deref());
    let outcome = detached(resume(app.clone(), vec![id], why)).await?.remove(&id);
    match outcome.unwrap_or(ResumeOutcome::Unknown) {
        ResumeOutcome::Resumed => read(&app, id).await,
        ResumeOutcome::Unknown => Err(unknown(id)),
        ResumeOutcome::Refused(status) => {
            Err(Problem::conflict(format!("The saga is {status}; only a FAILED or COMPENSATING one can be resumed.")))
        }
    }
}

/// What can be resumed
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Resumable {
    #[default]
    Failed,
    Compensating,
}

/// Selects the sagas that match all conditions. `{}` selects all FAILED ones.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeFilter {
    /// FAILED, or COMPENSATING ones, without waiting for their next attempt.
    #[serde(default)]
    #[schema(required = false)]
    status: Resumable,
    /// A service whose receipt is missing: `payment`.
    due_from: Option<String>,
    /// The step that refused, detected the timeout, or cancelled: `process_payment`.
    failed_at_step: Option<String>,
    /// Only sagas that began at least this many seconds ago.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    older_than: Option<f64>,
}

/// The result of a bulk resume.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResumeBody {
    dry_run: bool,
    /// The number of sagas that match the filter.
    matched: i64,
    /// The number of sagas that were resumed.
    resumed: usize,
    /// The oldest matching ones, up to the limit.
    saga_ids: Vec<Uuid>,
}

/// Retry the compensations of many sagas, or report which
#[utoipa::path(post, path = "/api/admin/sagas/resume", tag = "administration", request_body = Bulk<ResumeFilter>,
    responses((status = 200, description = "The result; with `dry_run` the sagas that match", body = ResumeBody)))]
pub(super) async fn resume_sagas(
    State(app): State<App>,
    headers: HeaderMap,
    Json(wanted): Json<Bulk<ResumeFilter>>,
) -> JsonResult<ResumeBody> {
    let limit = wanted.limit()?;
    let Bulk { filter, dry_run, reason, .. } = wanted;
    let (matched, saga_ids) = uncompensated(&app.participant.pools.http, &filter.checked()?, limit).await?;
    if dry_run {
        return Ok(Json(ResumeBody { dry_run, matched, resumed: 0, saga_ids }));
    }
    let why = resume_reason(&headers, Some(&reason));
    let outcomes = detached(resume(app, saga_ids.clone(), why)).await?;
    let resumed = outcomes.values().filter(|outcome| **outcome == ResumeOutcome::Resumed).count();
    Ok(Json(ResumeBody { dry_run, matched, resumed, saga_ids }))
}

impl ResumeFilter {
    fn checked(self) -> Result<CompensationFilter, Problem> {
        if self.older_than.is_some_and(|s| !(0.0..=1e9).contains(&s)) {
            return Err(Problem::invalid("/filter/older_than", "A number of seconds, 0 to 1,000,000,000."));
        }
        let status = match self.status {
            Resumable::Failed => Status::Failed,
            Resumable::Compensating => Status::Compensating,
        };
        let ResumeFilter { due_from, failed_at_step, older_than: older_than_seconds, .. } = self;
        Ok(CompensationFilter { status, due_from, failed_at_step, older_than_seconds })
    }
}

/// In small transactions, which hold their locks only briefly.
async fn resume(app: App, saga_ids: Vec<Uuid>, why: String) -> Result<HashMap<Uuid, ResumeOutcome>, Problem> {
    let mut outcomes = HashMap::with_capacity(saga_ids.len());
    for some in saga_ids.chunks(100) {
        let done = retry_contended(|| compensation::resume(&app, some, &why)).await;
        outcomes.extend(done.map_err(|e| problem(&e))?);
        let others: Vec<Uuid> = some.iter().copied().filter(|saga_id| !outcomes.contains_key(saga_id)).collect();
        if !others.is_empty() {
            let done = retry_contended(|| orchestration::resume(&app, &others, &why)).await;
            outcomes.extend(done.map_err(|e| problem(&e))?);
        }
    }
    Ok(outcomes)
}

/// The actor and the reason, for the journal.
fn resume_reason(headers: &HeaderMap, reason: Option<&str>) -> String {
    let actor = actor(headers);
    reason.map_or_else(|| format!("{actor} resumed it"), |reason| format!("{actor} resumed it: {reason}"))
}

async fn read(app: &App, id: Uuid) -> JsonResult<SagaHistory> {
    let pool = &app.participant.pools.http;
    let saga = query::get(pool, id).await?.ok_or_else(|| unknown(id))?;
    let steps = query::journal(pool, id).await?;
    Ok(Json(SagaHistory {
        saga: body(&saga),
        correlation_id: saga.correlation_id,
        trace_id: saga.trace_id,
        receipts_due: saga.receipts_due,
        compensation_deadline: saga.compensation_deadline,
        compensation_attempts: saga.compensation_attempts,
        steps: steps.into_iter().map(step_body).collect(),
    }))
}

fn unknown(id: Uuid) -> Problem {
    Problem::not_found(format!("There is no saga {id}."))
}

fn body(row: &SagaView) -> SagaBody {
    let duration = row.completed_at.map(|end| (end - row.started_at).whole_milliseconds());
    SagaBody {
        saga_id: row.saga_id,
        saga_type: row.saga_type.clone(),
        order_id: row.business_key,
        status: row.status.clone(),
        current_step: row.current_step,
        total_steps: row.total_steps,
        started_at: row.started_at,
        deadline: row.deadline,
        completed_at: row.completed_at,
        duration_ms: duration.and_then(|ms| i64::try_from(ms).ok()),
        failure_reason: row.failure_reason.clone(),
        failed_at_step: row.failed_at_step.clone(),
    }
}

fn step_body(row: StepView) -> SagaStepBody {
    SagaStepBody {
        position: row.position,
        step_number: row.step_number,
        step: row.step,
        service: row.service,
        direction: row.direction,
        event_type: row.event_type,
        event_id: row.event_id,
        status: row.status,
        occurred_at: row.occurred_at,
        reason: row.reason,
        fault: row.fault,
    }
}
