//! Housekeeping, at an operator's request.

use axum::extract::State;
use bootstrap::{Json, JsonResult, Problem, detached};
use messaging::housekeeping::{self, HousekeepingRound};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Shared, expect_reason};

/// Whether to do it, and the reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HousekeepingBody {
    /// Only report what a round would do. True by default.
    #[serde(default = "super::yes")]
    dry_run: bool,
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

/// What a round of housekeeping has done, or would do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HousekeepingAnswer {
    dry_run: bool,
    #[serde(flatten)]
    round: HousekeepingRound,
}

/// Delete and archive what is older than its retention, now, or report what that would be
///
/// A round by itself follows each `HOUSEKEEPING_EVERY`. Tables that are in use are left for the next one.
#[utoipa::path(post, path = "/api/admin/housekeeping", tag = "administration", request_body = HousekeepingBody,
    responses(
        (status = 200, description = "What was done, or would be", body = HousekeepingAnswer),
        (status = 409, description = "A round is under way", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn run_housekeeping(
    State(admin): Shared,
    Json(HousekeepingBody { dry_run, reason }): Json<HousekeepingBody>,
) -> JsonResult<HousekeepingAnswer> {
    expect_reason(&reason)?;
    let participant = admin.participant.clone();
    let round = async move {
        let mut conn = participant.pools.work.acquire().await?;
        let round = housekeeping::run_round(&mut conn, &participant.settings.messaging, dry_run).await?;
        if let Some(round) = round.filter(|_| !dry_run) {
            round.count(&participant.metrics);
        }
        Ok::<_, Problem>(round)
    };
    let round = detached(round).await?.ok_or_else(|| Problem::conflict("A round of housekeeping is under way."))?;
    Ok(Json(HousekeepingAnswer { dry_run, round }))
}
