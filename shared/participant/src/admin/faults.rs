//! The faults armed in this replica. The routes are there only where faults are enabled.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use bootstrap::{Json, Path, Problem};
use faults::{Armed, FaultPoint, FaultSpec, Kind};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Shared, actor};

pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<super::Desk>> {
    OpenApiRouter::new().routes(routes!(list_faults, arm_fault, disarm_all_faults)).routes(routes!(disarm_fault))
}

/// The armed faults, and what can be armed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FaultList {
    items: Vec<Armed>,
    points: Vec<PointBody>,
}

/// A place where faults can happen.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PointBody {
    point: FaultPoint,
    about: &'static str,
    kinds: &'static [Kind],
}

/// What was disarmed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Disarmed {
    disarmed: usize,
}

/// The armed faults of this replica
#[utoipa::path(get, path = "/api/admin/faults", tag = "administration",
    responses((status = 200, description = "The armed faults", body = FaultList)))]
pub(crate) async fn list_faults(State(desk): Shared) -> Json<FaultList> {
    let points = FaultPoint::ALL.iter().map(|p| PointBody { point: *p, about: p.about(), kinds: p.kinds() });
    Json(FaultList { items: desk.participant.faults.armed(), points: points.collect() })
}

/// Arm a fault in this replica; it expires by itself, after 60 seconds unless it says otherwise
#[utoipa::path(post, path = "/api/admin/faults", tag = "administration", request_body = FaultSpec,
    responses((status = 201, description = "The armed fault", body = Armed),
        (status = 422, description = "Nothing that can be armed", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn arm_fault(
    State(desk): Shared,
    headers: HeaderMap,
    Json(spec): Json<FaultSpec>,
) -> Result<(StatusCode, Json<Armed>), Problem> {
    let armed = desk.participant.faults.arm(spec, &actor(&headers));
    let armed = armed.map_err(|refused| Problem::unprocessable(format!("Nothing is armed: {refused}.")))?;
    Ok((StatusCode::CREATED, Json(armed)))
}

/// Disarm every fault of this replica
#[utoipa::path(delete, path = "/api/admin/faults", tag = "administration",
    responses((status = 200, description = "How many there were", body = Disarmed)))]
pub(crate) async fn disarm_all_faults(State(desk): Shared) -> Json<Disarmed> {
    Json(Disarmed { disarmed: desk.participant.faults.disarm_all() })
}

/// Disarm a fault
#[utoipa::path(delete, path = "/api/admin/faults/{id}", tag = "administration",
    params(("id" = u64, Path, description = "The fault's id")),
    responses((status = 200, description = "It is disarmed", body = Disarmed),
        (status = 404, description = "No such fault is armed", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn disarm_fault(State(desk): Shared, Path(id): Path<u64>) -> Result<Json<Disarmed>, Problem> {
    match desk.participant.faults.disarm(id) {
        true => Ok(Json(Disarmed { disarmed: 1 })),
        false => Err(Problem::not_found("No such fault is armed in this replica.")),
    }
}
