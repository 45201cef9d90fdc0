//! Annotations: named bands on every dashboard, begun and ended by request, for example of a scenario or an exercise. Armed
//! faults have annotations automatically. The routes exist only where faults are enabled.

use axum::{extract::State, http::StatusCode};
use bootstrap::{Json, JsonResult, Path, Problem};
use saga_store::annotation;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::Shared;

pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<super::AdminState>> {
    OpenApiRouter::new().routes(routes!(begin_annotation)).routes(routes!(end_annotation))
}

/// An annotation to begin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAnnotation {
    /// The name that dashboards show.
    #[schema(min_length = 1, max_length = 200)]
    title: String,
}

/// A begun annotation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BegunAnnotation {
    annotation_id: Uuid,
    title: String,
    #[serde(with = "time::serde::rfc3339")]
    began_at: OffsetDateTime,
}

/// An ended annotation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndedAnnotation {
    annotation_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    ended_at: OffsetDateTime,
}

/// Begin a named band on every dashboard
#[utoipa::path(post, path = "/api/admin/annotations", tag = "administration", request_body = NewAnnotation,
    responses((status = 201, description = "It has begun", body = BegunAnnotation),
        (status = 422, description = "No title, or one that is too long", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn begin_annotation(
    State(admin): Shared,
    Json(NewAnnotation { title }): Json<NewAnnotation>,
) -> Result<(StatusCode, Json<BegunAnnotation>), Problem> {
    if !(1..=200).contains(&title.chars().count()) || title.contains('\0') {
        return Err(Problem::invalid("/title", "must be 1 to 200 characters, none of them NUL"));
    }
    let annotation_id = Uuid::now_v7();
    let began_at = annotation::begin_scenario(&admin.participant.pools.http, annotation_id, &title).await?;
    Ok((StatusCode::CREATED, Json(BegunAnnotation { annotation_id, title, began_at })))
}

/// End a named band; an ended one does not change
#[utoipa::path(post, path = "/api/admin/annotations/{id}/end", tag = "administration",
    params(("id" = Uuid, Path, description = "The annotation's id")),
    responses((status = 200, description = "It has ended", body = EndedAnnotation),
        (status = 404, description = "No such annotation", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn end_annotation(
    State(admin): Shared,
    Path(annotation_id): Path<Uuid>,
) -> JsonResult<EndedAnnotation> {
    let ended = annotation::end_scenario(&admin.participant.pools.http, annotation_id).await?;
    let ended_at = ended.ok_or_else(|| Problem::not_found("No such annotation was begun over REST."))?;
    Ok(Json(EndedAnnotation { annotation_id, ended_at }))
}
