//! Housekeeping, at an operator's request.

use axum::extract::State;
use bootstrap::{Json, JsonResult, detached};
use messaging::housekeeping::{self, Tidied};
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
pub(crate) struct HousekeepingRound {
    dry_run: bool,
    #[serde(flatten)]
    tidied: Tidied,
}

/// Delete and archive what is older than its retention, now, or report what that would be
///
/// A round by itself follows each `HOUSEKEEPING_EVERY`. Tables that are in use are left for the next one.
#[utoipa::path(post, path = "/api/admin/housekeeping", tag = "administration", request_body = HousekeepingBody,
    responses((status = 200, description = "What was done, or would be", body = HousekeepingRound)))]
pub(crate) async fn keep_house(
    State(admin): Shared,
    Json(HousekeepingBody { dry_run, reason }): Json<HousekeepingBody>,
) -> JsonResult<HousekeepingRound> {
    expect_reason(&reason)?;
    let participant = admin.participant.clone();
    let round = async move {
        let mut conn = participant.pools.work.acquire().await?;
        let settings = &participant.settings.messaging;
        if dry_run {
            return housekeeping::rehearse(&mut conn, settings).await;
        }
        let tidied = housekeeping::tidy(&mut conn, settings).await?;
        tidied.count(&participant.metrics);
        Ok(tidied)
    };
    Ok(Json(HousekeepingRound { dry_run, tidied: detached(round).await? }))
}
