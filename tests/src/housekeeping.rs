//! A round of housekeeping, as a service runs it.

use messaging::{
    MessagingArgs,
    housekeeping::{HousekeepingRound, run_round},
};
use sqlx::PgConnection;

use crate::eventually;

/// Runs a round, when the one is over that the service runs as it starts.
pub async fn run_housekeeping(conn: &mut PgConnection, settings: &MessagingArgs) -> anyhow::Result<HousekeepingRound> {
    eventually(async || anyhow::Ok(run_round(conn, settings, false).await?)).await
}
