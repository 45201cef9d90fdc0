//! Replays of dead letters to the step that failed: of one, or of a batch in growing waves, and dry runs of a batch.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
};
use bootstrap::{Json, JsonResult, Page, PageQuery, Path, Problem, Query, detached, detached_within};
use messaging::dead_letter::{self, Batch, BatchRequest, DEFAULT_RAMP, DryRun, ReplayOutcome, Selection, Stop};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{
    ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, Schema, schema::SchemaType, schema::Type},
};
use uuid::Uuid;

use super::{
    Shared, Why, actor,
    dead_letters::{DeadLetterHistory, get_dead_letter, problem},
};

/// The time limit of replays that are answered with their outcome: each runs a step, which has a minute, and writes the outcome.
const STEPS_LIMIT: Duration = Duration::from_secs(120);

/// A request for a batch of replays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    #[serde(deserialize_with = "bootstrap::http::object")]
    /// Selects among the PENDING ones.
    filter: Selection,
    /// The maximal number of entries, the oldest first; 1000 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<i64>,
    /// Only report the outcome that each replay would have, without a change and without calls to other systems.
    #[serde(default)]
    dry_run: bool,
    /// The size of each wave, the last one repeated: 1, 2, 5, 10, 10 ... by default.
    #[schema(schema_with = ramp_schema)]
    ramp: Option<Vec<i32>>,
    reason: Option<String>,
}

/// A batch of replays: its set of entries was fixed by the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayBody {
    replay_id: Uuid,
    /// `RUNNING`, `DONE`, or `STOPPED`: by the first entry that failed again, or because its replica stopped.
    state: String,
    selected: usize,
    /// The size of each wave.
    waves: Vec<usize>,
    replayed: i32,
    resolved: i32,
    failed: i32,
    /// Entries that another replay had taken, or that cannot be replayed any more.
    skipped: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<Stop>,
    #[schema(value_type = Object)]
    filter: serde_json::Value,
    requested_by: String,
    #[schema(required = true)]
    reason: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    requested_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// A batch of replays and its entries, in the order in which they are replayed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayDetail {
    #[serde(flatten)]
    replay: ReplayBody,
    dead_letter_ids: Vec<Uuid>,
}

/// The outcomes that a batch would have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunBody {
    dry_run: bool,
    selected: usize,
    items: Vec<DryRun>,
}

/// Run the failed step on the event, now
#[utoipa::path(post, path = "/api/admin/dlq/{id}/replay", tag = "administration",
    params(("id" = Uuid, Path, description = "The dead letter's id")), request_body = Option<Why>,
    responses((status = 200, description = "The dead letter with the outcome: RESOLVED, or PENDING again", body = DeadLetterHistory),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not PENDING, or was replayed three times", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replay_dead_letter(
    State(admin): Shared,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> JsonResult<DeadLetterHistory> {
    let reason = why.and_then(|Json(why)| why.reason);
    let (replays, actor) = (admin.replays.clone(), actor(&headers));
    let replay = async move { dead_letter::replay(&replays, id, &actor, reason.as_deref()).await.map_err(problem) };
    let outcome = detached_within(STEPS_LIMIT, replay).await?;
    if let ReplayOutcome::FailedAgain { why, .. } = outcome {
        tracing::warn!(dead_letter_id = %id, why, "a replay failed");
    }
    get_dead_letter(State(admin), Path(id)).await
}

/// Replay a batch, or report the outcomes it would have
#[utoipa::path(post, path = "/api/admin/dlq/replay", tag = "administration", request_body = ReplayRequest,
    responses((status = 202, description = "The batch, which runs in the background", body = ReplayBody,
            headers(("Location" = String, description = "The batch"))),
        (status = 200, description = "With `dry_run`: the outcome that each replay would have", body = DryRunBody)))]
pub(crate) async fn replay_dead_letters(
    State(admin): Shared,
    headers: HeaderMap,
    Json(wanted): Json<ReplayRequest>,
) -> Result<Response, Problem> {
    let (replays, dry_run) = (admin.replays.clone(), wanted.dry_run);
    let request = wanted.checked(actor(&headers))?;
    if dry_run {
        let items = detached_within(STEPS_LIMIT, async move { dead_letter::dry_run(&replays, request).await }).await?;
        return Ok(Json(DryRunBody { dry_run, selected: items.len(), items }).into_response());
    }
    let batch = detached(async move { dead_letter::replay_batch(&replays, request).await }).await?;
    let location = format!("/api/admin/dlq/replays/{}", batch.replay_id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], Json(body(&batch))).into_response())
}

/// Batches of replays, newest first
#[utoipa::path(get, path = "/api/admin/dlq/replays", tag = "administration", params(PageQuery),
    responses((status = 200, description = "A page of batches", body = Page<ReplayBody>)))]
pub(crate) async fn list_dead_letter_replays(
    State(admin): Shared,
    Query(page): Query<PageQuery>,
) -> JsonResult<Page<ReplayBody>> {
    let rows = dead_letter::batches(&admin.participant.pools.http, page.after()?, page.rows()).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.replay_id).map(|row| body(&row))))
}

/// One batch of replays and its entries
#[utoipa::path(get, path = "/api/admin/dlq/replays/{id}", tag = "administration",
    params(("id" = Uuid, Path, description = "The batch's id")),
    responses((status = 200, description = "The batch", body = ReplayDetail),
        (status = 404, description = "No such batch", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_dead_letter_replay(State(admin): Shared, Path(id): Path<Uuid>) -> JsonResult<ReplayDetail> {
    let batch = dead_letter::batch(&admin.participant.pools.http, id).await?;
    let batch = batch.ok_or_else(|| Problem::not_found("There is no such batch of replays."))?;
    Ok(Json(ReplayDetail { replay: body(&batch), dead_letter_ids: batch.ids }))
}

/// The schema attributes of a field cannot describe the items of a list.
fn ramp_schema() -> Schema {
    let size = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(1000));
    let list = SchemaType::from_iter([Type::Array, Type::Null]);
    ArrayBuilder::new().schema_type(list).items(size).min_items(Some(1)).max_items(Some(20)).into()
}

impl ReplayRequest {
    fn checked(self, actor: String) -> Result<BatchRequest, Problem> {
        let limit = self.limit.unwrap_or(1000);
        if !(1..=10_000).contains(&limit) {
            return Err(Problem::invalid("/limit", "A number of entries, 1 to 10,000."));
        }
        let ramp = self.ramp.unwrap_or_else(|| DEFAULT_RAMP.to_vec());
        if !(1..=20).contains(&ramp.len()) || ramp.iter().any(|wave| !(1..=1000).contains(wave)) {
            return Err(Problem::invalid("/ramp", "1 to 20 sizes of waves, each 1 to 1,000."));
        }
        Ok(BatchRequest { actor, reason: self.reason, selection: self.filter, limit, ramp })
    }
}

fn body(batch: &Batch) -> ReplayBody {
    ReplayBody {
        replay_id: batch.replay_id,
        state: batch.state.clone(),
        selected: batch.ids.len(),
        waves: dead_letter::waves(&batch.ramp, batch.ids.len()),
        replayed: batch.replayed(),
        resolved: batch.resolved,
        failed: batch.failed,
        skipped: batch.skipped,
        stopped_by: batch.stopped_by(),
        filter: batch.filter.clone(),
        requested_by: batch.requested_by.clone(),
        reason: batch.reason.clone(),
        requested_at: batch.requested_at,
        updated_at: batch.updated_at,
    }
}
