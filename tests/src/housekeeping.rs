//! A round of housekeeping, as a service runs it.

use anyhow::Context as _;
use messaging::{
    MessagingArgs,
    housekeeping::{HousekeepingRound, run_round},
};
use sqlx::PgConnection;

pub async fn run_housekeeping(conn: &mut PgConnection, settings: &MessagingArgs) -> anyhow::Result<HousekeepingRound> {
    run_round(conn, settings, false).await?.context("another round is under way")
}
