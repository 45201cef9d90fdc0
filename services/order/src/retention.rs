//! Purges finished sagas and idempotency keys after their retention. By one replica at a time.

use messaging::{lease, periodic::every};
use tokio_util::sync::CancellationToken;

use crate::{App, store};

/// Small batches, which hold locks only briefly, and enough of them per round to keep up.
const BATCH: i32 = 1000;
const BATCHES: u32 = 1000;

pub(crate) async fn run(app: App, stop: CancellationToken) {
    let period = app.config.participant.messaging.housekeeping_every;
    every(period, &stop, || async {
        match round(&app).await {
            Ok(0) => {}
            Ok(purged) => tracing::info!(purged, "old sagas were purged"),
            Err(error) => tracing::warn!(%error, "old sagas could not be purged; retried in the next round"),
        }
    })
    .await;
}

async fn round(app: &App) -> Result<i64, sqlx::Error> {
    let mut conn = app.participant.pools.work.acquire().await?;
    let period = app.config.participant.messaging.housekeeping_every;
    if !lease::hold(&mut conn, "retention", &app.participant.holder, period * 2).await? {
        return Ok(0);
    }
    let batch = i64::from(BATCH);
    let mut purged = 0;
    for _ in 0..BATCHES {
        let keys = store::delete_old_keys(&mut conn, app.config.idempotency_retention, batch).await?;
        app.purged.keys.inc_by(keys);
        let sagas = saga_store::query::purge(&mut conn, app.config.saga_retention, BATCH).await?;
        app.purged.sagas.inc_by(sagas.unsigned_abs());
        purged += sagas;
        if keys < BATCH.unsigned_abs().into() && sagas < batch {
            break;
        }
    }
    Ok(purged)
}
