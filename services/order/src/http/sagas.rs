//! Sagas: where each stands, what each step did, and driving a stuck one on.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{
    Json, Page, PageQuery, Path, Problem, Query, detached,
    http::{Cursor, Limit},
};
use messaging::retry_contended;
use participant::{Why, actor};
use saga::Status;
use saga_store::{
    compensation::{Unsettled, unsettled},
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
    compensation::{self, Resumed},
};

/// Where a saga stands
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum SagaStatus {
    Started,
    InProgress,
    Completed,
    TimedOut,
    Compensating,
    Compensated,
    Failed,
}

impl From<SagaStatus> for Status {
    fn from(status: SagaStatus) -> Status {
        match status {
            SagaStatus::Started => Status::Started,
            SagaStatus::InProgress => Status::InProgress,
            SagaStatus::Completed => Status::Completed,
            SagaStatus::TimedOut => Status::TimedOut,
            SagaStatus::Compensating => Status::Compensating,
            SagaStatus::Compensated => Status::Compensated,
            SagaStatus::Failed => Status::Failed,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SagaQuery {
    status: Option<SagaStatus>,
    /// The saga's type: `OrderFulfillment`.
    #[serde(rename = "type")]
    saga_type: Option<String>,
    order_id: Option<Uuid>,
    /// Only sagas that began at least this many seconds ago.
    #[param(minimum = 0, maximum = 1_000_000_000)]
    older_than: Option<f64>,
    /// Sagas per page.
    #[serde(default)]
    #[param(value_type = Option<Limit>)]
    limit: Limit,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
}

/// A saga.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaBody {
    saga_id: Uuid,
    saga_type: String,
    order_id: Uuid,
    #[schema(value_type = SagaStatus)]
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
    /// From the start to the end; null while it runs.
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
    /// The services that have not confirmed their undo yet.
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
    /// `COMPLETED`, `FAILED` (a refusal), `COMPENSATED` or `SKIPPED` (came too late).
    status: String,
    #[serde(with = "time::serde::rfc3339")]
    occurred_at: OffsetDateTime,
    #[schema(required = true)]
    reason: Option<String>,
    /// The fault that was in force, if any.
    #[schema(required = true)]
    fault: Option<String>,
}

/// How many sagas are where.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaSummary {
    /// Every status with its count, also those with none. Of the sagas that are COMPLETED or COMPENSATED only those among the
    /// latest 10,000 are counted.
    by_status: BTreeMap<&'static str, i64>,
    /// Age of the oldest saga that still runs, in seconds; null when none does.
    #[schema(required = true)]
    oldest_active_seconds: Option<f64>,
}

/// Sagas, newest first
///
/// Asked for COMPLETED or COMPENSATED ones, for a type or an age, a page is what is found among 5,000 sagas at most: it may be
/// short, or empty, and have a next one. Those of an order, and of any other status, are found wherever they are.
#[utoipa::path(get, path = "/api/sagas", tag = "sagas", params(SagaQuery),
    responses((status = 200, description = "A page of sagas", body = Page<SagaBody>)))]
pub(super) async fn list_sagas(
    State(app): State<App>,
    Query(query): Query<SagaQuery>,
) -> Result<Json<Page<SagaBody>>, Problem> {
    if query.older_than.is_some_and(|s| !(0.0..=1e9).contains(&s)) {
        return Err(Problem::invalid("/older_than", "A number of seconds, 0 to 1,000,000,000."));
    }
    let page = PageQuery::new(query.limit, query.cursor);
    let filter = Filter {
        status: query.status.map(Status::from),
        saga_type: query.saga_type.as_deref(),
        business_key: query.order_id,
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
pub(super) async fn get_saga_summary(State(app): State<App>) -> Result<Json<SagaSummary>, Problem> {
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
pub(super) async fn get_saga(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<SagaHistory>, Problem> {
    read(&app, id).await
}

/// Drive the compensation of a stuck saga again
#[utoipa::path(post, path = "/api/admin/sagas/{id}/resume", tag = "administration",
    params(("id" = Uuid, Path, description = "The saga's id")), request_body = Option<Why>,
    responses((status = 200, description = "Driven on", body = SagaHistory),
        (status = 404, description = "No such saga", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is neither FAILED nor COMPENSATING", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn resume_saga(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> Result<Json<SagaHistory>, Problem> {
    let why = because(&headers, why.and_then(|Json(why)| why.reason).as_deref());
    let outcome = detached(resume(app.clone(), vec![id], why)).await?.remove(&id);
    match outcome.unwrap_or(Resumed::Unknown) {
        Resumed::Driven => read(&app, id).await,
        Resumed::Unknown => Err(unknown(id)),
        Resumed::Refused(status) => {
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

/// Which sagas: those of which all of this is true. `{}` means all that are FAILED.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeFilter {
    /// FAILED, or COMPENSATING ones, without waiting for their next attempt.
    #[serde(default)]
    #[schema(required = false)]
    status: Resumable,
    /// The service that has not confirmed its undo: `payment`.
    due_from: Option<String>,
    /// The step at which the saga turned back: `process_payment`.
    failed_at_step: Option<String>,
    /// Only sagas that began at least this many seconds ago.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    older_than: Option<f64>,
}

/// Which sagas to resume, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeRequest {
    #[serde(deserialize_with = "bootstrap::http::object")]
    filter: ResumeFilter,
    /// How many at most, the oldest first; 100 by default.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only say which ones it would be; nothing is changed. So it is, unless it is false.
    #[serde(default = "yes")]
    dry_run: bool,
    /// Each saga's journal keeps it, with the name in `x-actor`.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

fn yes() -> bool {
    true
}

/// What became of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResumeBody {
    dry_run: bool,
    /// How many sagas the filter is true of.
    matched: i64,
    /// How many of these were driven on.
    resumed: usize,
    /// The oldest of them, as many as the limit allows.
    saga_ids: Vec<Uuid>,
}

/// Drive the compensations of many stuck sagas again, or say of which
#[utoipa::path(post, path = "/api/admin/sagas/resume", tag = "administration", request_body = ResumeRequest,
    responses((status = 200, description = "What was done, or with `dry_run` what would be", body = ResumeBody)))]
pub(super) async fn resume_sagas(
    State(app): State<App>,
    headers: HeaderMap,
    Json(wanted): Json<ResumeRequest>,
) -> Result<Json<ResumeBody>, Problem> {
    let limit = wanted.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(Problem::invalid("/limit", "A number of sagas, 1 to 1000."));
    }
    if !(1..=500).contains(&wanted.reason.chars().count()) {
        return Err(Problem::invalid("/reason", "A reason has 1 to 500 characters."));
    }
    let which = wanted.filter.checked()?;
    let (matched, saga_ids) = unsettled(&app.participant.pools.http, &which, limit).await?;
    if wanted.dry_run {
        return Ok(Json(ResumeBody { dry_run: true, matched, resumed: 0, saga_ids }));
    }
    let why = because(&headers, Some(&wanted.reason));
    let outcomes = detached(resume(app, saga_ids.clone(), why)).await?;
    let resumed = outcomes.values().filter(|outcome| **outcome == Resumed::Driven).count();
    Ok(Json(ResumeBody { dry_run: false, matched, resumed, saga_ids }))
}

impl ResumeFilter {
    fn checked(self) -> Result<Unsettled, Problem> {
        if self.older_than.is_some_and(|s| !(0.0..=1e9).contains(&s)) {
            return Err(Problem::invalid("/filter/older_than", "A number of seconds, 0 to 1,000,000,000."));
        }
        let status = match self.status {
            Resumable::Failed => Status::Failed,
            Resumable::Compensating => Status::Compensating,
        };
        let ResumeFilter { due_from, failed_at_step, older_than: older_than_seconds, .. } = self;
        Ok(Unsettled { status, due_from, failed_at_step, older_than_seconds })
    }
}

/// In small transactions, so that nobody waits for their locks.
async fn resume(app: App, saga_ids: Vec<Uuid>, why: String) -> Result<HashMap<Uuid, Resumed>, Problem> {
    let mut outcomes = HashMap::with_capacity(saga_ids.len());
    for some in saga_ids.chunks(100) {
        let done = retry_contended(|| compensation::resume(&app, some, &why)).await;
        outcomes.extend(done.map_err(|e| problem(&e))?);
    }
    Ok(outcomes)
}

/// Who and why, as the journal has it.
fn because(headers: &HeaderMap, reason: Option<&str>) -> String {
    let actor = actor(headers);
    reason.map_or_else(|| format!("{actor} resumed it"), |reason| format!("{actor} resumed it: {reason}"))
}

async fn read(app: &App, id: Uuid) -> Result<Json<SagaHistory>, Problem> {
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
