//! Dead letters: list, read and discard them.

use axum::{extract::State, http::HeaderMap};
use bootstrap::{Filtered, Json, JsonResult, Page, PageQuery, Path, Problem, detached};
use messaging::{
    dead_letter::{self, Action, DeadLetter, Filter, ReplayError, Selection},
    frozen_set::Of,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    Shared, Why, actor,
    bulk::{DiscardBody, FrozenBulk},
};

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum DeadLetterStatus {
    Pending,
    Replayed,
    Resolved,
    Discarded,
}

impl DeadLetterStatus {
    const fn as_str(self) -> &'static str {
        match self {
            DeadLetterStatus::Pending => "PENDING",
            DeadLetterStatus::Replayed => "REPLAYED",
            DeadLetterStatus::Resolved => "RESOLVED",
            DeadLetterStatus::Discarded => "DISCARDED",
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterQuery {
    #[param(inline)]
    status: Option<DeadLetterStatus>,
    /// The step that failed.
    step: Option<String>,
    /// With or without its version: `OrderCreated` or `OrderCreated.v1`.
    event_type: Option<String>,
    saga_id: Option<Uuid>,
    /// The entry's reason: `attempts exhausted`, `undecodable`, `unknown version`, `poison`.
    reason: Option<String>,
    /// Only older ones.
    #[serde(default, with = "time::serde::rfc3339::option")]
    created_before: Option<OffsetDateTime>,
}

/// A dead letter and the actions on it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterHistory {
    #[serde(flatten)]
    entry: DeadLetter,
    actions: Vec<Action>,
}

/// The number of PENDING dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterCount {
    count: i64,
}

/// Dead letters, newest first
#[utoipa::path(get, path = "/api/admin/dlq", tag = "administration", params(DeadLetterQuery, PageQuery),
    responses((status = 200, description = "A page of dead letters", body = Page<DeadLetter>)))]
pub(crate) async fn list_dead_letters(
    State(admin): Shared,
    Filtered(query, page): Filtered<DeadLetterQuery>,
) -> JsonResult<Page<DeadLetter>> {
    let DeadLetterQuery { status, step, event_type, saga_id, reason, created_before } = query;
    let status = status.map(|status| status.as_str().to_owned());
    let selection = Selection { step, event_type, saga_id, reason, created_before };
    let filter = Filter { status, selection, before: page.after()?, limit: page.rows() };
    let rows = dead_letter::list(&admin.participant.pools.read, &filter).await?;
    Ok(Json(Page::from_rows(rows, &page, |row| row.dead_letter_id)))
}

/// How many dead letters are PENDING
#[utoipa::path(get, path = "/api/admin/dlq/count", tag = "administration",
    responses((status = 200, description = "The count", body = DeadLetterCount)))]
pub(crate) async fn count_dead_letters(State(admin): Shared) -> JsonResult<DeadLetterCount> {
    let count = dead_letter::count_pending(&admin.participant.pools.http).await?;
    Ok(Json(DeadLetterCount { count }))
}

/// One dead letter and the actions on it
#[utoipa::path(get, path = "/api/admin/dlq/{id}", tag = "administration",
    params(("id" = Uuid, Path, description = "The dead letter's id")),
    responses((status = 200, description = "The dead letter", body = DeadLetterHistory),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_dead_letter(State(admin): Shared, Path(id): Path<Uuid>) -> JsonResult<DeadLetterHistory> {
    let pool = &admin.participant.pools.http;
    let entry = dead_letter::get(pool, id).await?.ok_or_else(not_found)?;
    Ok(Json(DeadLetterHistory { entry, actions: dead_letter::actions(pool, id).await? }))
}

/// Discard the event
#[utoipa::path(delete, path = "/api/admin/dlq/{id}", tag = "administration",
    params(("id" = Uuid, Path, description = "The dead letter's id")), request_body = Option<Why>,
    responses((status = 200, description = "The dead letter, discarded", body = DeadLetterHistory),
        (status = 404, description = "No such dead letter", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not PENDING", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn discard_dead_letter(
    State(admin): Shared,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    why: Option<Json<Why>>,
) -> JsonResult<DeadLetterHistory> {
    let reason = why.and_then(|Json(why)| why.reason).unwrap_or_else(|| "no reason given".to_owned());
    let (replays, actor) = (admin.replays.clone(), actor(&headers));
    detached(async move { dead_letter::discard(&replays, id, &actor, &reason).await.map_err(problem) }).await?;
    get_dead_letter(State(admin), Path(id)).await
}

/// Discard the dead letters of a dry run
#[utoipa::path(post, path = "/api/admin/dlq/discard", tag = "administration", request_body = FrozenBulk<Selection>,
    responses((status = 200, description = "The result; with `dry_run` the entries that match, and their frozen set", body = DiscardBody)))]
pub(crate) async fn discard_dead_letters(
    State(admin): Shared,
    headers: HeaderMap,
    Json(wanted): Json<FrozenBulk<Selection>>,
) -> JsonResult<DiscardBody> {
    wanted.expect_frozen()?;
    let (replays, actor) = (admin.replays.clone(), actor(&headers));
    let pool = &admin.participant.pools.http;
    let undecided = async |filter: &Selection, limit| dead_letter::undecided(pool, filter, limit).await;
    let selected = wanted.selected(pool, Of::DeadLetters, &actor, undecided).await?;
    if wanted.dry_run {
        return Ok(Json(DiscardBody { selected, discarded: 0 }));
    }
    let (ids, reason) = (selected.ids.clone(), wanted.reason);
    let discard = async move { dead_letter::discard_all(&replays, &ids, &actor, &reason).await };
    Ok(Json(DiscardBody { selected, discarded: detached(discard).await?.len() }))
}

fn not_found() -> Problem {
    Problem::not_found("There is no such dead letter.")
}

pub(super) fn problem(error: ReplayError) -> Problem {
    match error {
        ReplayError::NotFound => not_found(),
        ReplayError::Database(error) => error.into(),
        other => Problem::conflict(format!("Not possible: {other}.")),
    }
}
