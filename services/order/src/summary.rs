//! The summary of orders per customer: a materialized view, which one replica at a time refreshes. It is as old as the last
//! refresh, and says so; no step reads it.

use std::time::Duration;

use messaging::{lease, periodic::every};
use tokio_util::sync::CancellationToken;

use crate::{App, store};

pub(crate) async fn run(app: App, stop: CancellationToken) {
    let period = app.config.customer_summary_every;
    every(period, &stop, || async {
        if let Err(error) = refresh_leased(&app, period).await {
            tracing::warn!(%error, "the summary of orders per customer was not refreshed; retried in the next period");
        }
    })
    .await;
}

async fn refresh_leased(app: &App, period: Duration) -> Result<(), sqlx::Error> {
    let mut conn = app.participant.pools.work.acquire().await?;
    if lease::hold(&mut conn, "customer_summary", &app.participant.holder, period).await? {
        store::refresh_summary(&mut conn).await?;
    }
    Ok(())
}
