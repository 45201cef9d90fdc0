//! Named bands on every board, from the moment somebody says until they say again: a scenario, an exercise. Faults that are
//! armed have theirs by themselves. The routes are there only where faults are enabled.

use axum::{extract::State, http::StatusCode};
use bootstrap::{Json, Path, Problem};
use saga_store::annotation;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::Shared;

pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<super::Desk>> {
    OpenApiRouter::new().routes(routes!(begin_annotation)).routes(routes!(end_annotation))
}

/// What begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAnnotation {
    /// What boards call it.
    #[schema(min_length = 1, max_length = 200)]
    title: String,
}

/// What has begun.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BegunAnnotation {
    annotation_id: Uuid,
    title: String,
    #[serde(with = "time::serde::rfc3339")]
    began_at: OffsetDateTime,
}

/// What is over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndedAnnotation {
    annotation_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    ended_at: OffsetDateTime,
}

/// Begin a named band on every board
#[utoipa::path(post, path = "/api/admin/annotations", tag = "administration", request_body = NewAnnotation,
    responses((status = 201, description = "It has begun", body = BegunAnnotation),
        (status = 422, description = "No title, or one that is too long", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn begin_annotation(
    State(desk): Shared,
    Json(NewAnnotation { title }): Json<NewAnnotation>,
) -> Result<(StatusCode, Json<BegunAnnotation>), Problem> {
    if !(1..=200).contains(&title.chars().count()) || title.contains('\0') {
        return Err(Problem::invalid("/title", "must be 1 to 200 characters, none of them NUL"));
    }
    let annotation_id = Uuid::now_v7();
    let began_at = annotation::begin_scenario(&desk.participant.pools.http, annotation_id, &title).await?;
    Ok((StatusCode::CREATED, Json(BegunAnnotation { annotation_id, title, began_at })))
}

/// End a named band; one that has ended stays as it is
#[utoipa::path(post, path = "/api/admin/annotations/{id}/end", tag = "administration",
    params(("id" = Uuid, Path, description = "The annotation's id")),
    responses((status = 200, description = "It has ended", body = EndedAnnotation),
        (status = 404, description = "No such annotation", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn end_annotation(
    State(desk): Shared,
    Path(annotation_id): Path<Uuid>,
) -> Result<Json<EndedAnnotation>, Problem> {
    let ended = annotation::end_scenario(&desk.participant.pools.http, annotation_id).await?;
    let ended_at = ended.ok_or_else(|| Problem::not_found("No such annotation was begun over REST."))?;
    Ok(Json(EndedAnnotation { annotation_id, ended_at }))
}
