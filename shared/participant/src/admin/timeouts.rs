//! The timeout check, at an operator's request.

use axum::extract::State;
use bootstrap::{Json, JsonResult, Problem, detached};
use messaging::StepError;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Shared, Why};

/// The result of a timeout check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TimeoutCheck {
    /// The number of sagas whose deadline had passed: they are TIMED_OUT now, and will be compensated.
    timed_out: i64,
}

/// Time out the sagas whose deadline has passed, now
///
/// Also where the detector is switched off, or may not compensate by itself.
#[utoipa::path(post, path = "/api/admin/timeouts/check", tag = "administration", request_body = Option<Why>,
    responses((status = 200, description = "How many were found", body = TimeoutCheck)))]
pub(crate) async fn check_timeouts(State(admin): Shared, _: Option<Json<Why>>) -> JsonResult<TimeoutCheck> {
    let timed_out = detached(async move { admin.participant.check_timeouts().await.map_err(problem) }).await?;
    tracing::warn!(timed_out, "an operator asked for a timeout check");
    Ok(Json(TimeoutCheck { timed_out }))
}

fn problem(error: StepError) -> Problem {
    match error {
        StepError::Failed(error) | StepError::Poison(error) => Problem::internal(&*error),
        StepError::Unavailable(_) | StepError::Contended(_) => {
            Problem::unavailable("The database cannot be reached, or other transactions hold the sagas; try again.", 1)
        }
    }
}
