//! Housekeeping of the messaging tables, by one replica at a time: partitions are created ahead, archived, and dropped when they are old;
//! rows of other tables are deleted in small batches.

use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::{Metrics, interval, lease::hold, periodic::every, settings::MessagingArgs};

const DAYS_AHEAD: i32 = 7;

/// The result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    pub partitions_created: i32,
    pub partitions_dropped: i32,
    /// Days of published events that became the archive.
    pub days_archived: i32,
    pub rows_deleted: u64,
    /// The pending dead letters among the deleted rows.
    pub dead_letters_forgotten: u64,
}

/// Runs a round every `settings.housekeeping_every` until `stop`.
pub async fn run(pool: PgPool, holder: String, settings: MessagingArgs, metrics: Metrics, stop: CancellationToken) {
    let kept = settings.dead_letter_retention.as_secs();
    metrics.dead_letter_retention.set(i64::try_from(kept).unwrap_or(i64::MAX));
    every(settings.housekeeping_every, &stop, || async {
        match leased_round(&pool, &holder, &settings).await {
            Ok(Some(tidied)) if tidied != Tidied::default() => {
                metrics.dead_letters_forgotten.inc_by(tidied.dead_letters_forgotten);
                metrics.partitions_dropped.inc_by(tidied.partitions_dropped.unsigned_abs().into());
                tracing::info!(?tidied, "housekeeping");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "housekeeping failed and will be retried"),
        }
    })
    .await;
}

async fn leased_round(pool: &PgPool, holder: &str, settings: &MessagingArgs) -> Result<Option<Tidied>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    if !hold(&mut conn, "housekeeping", holder, settings.housekeeping_every * 2).await? {
        return Ok(None);
    }
    tidy(&mut conn, settings).await.map(Some)
}

/// One round of housekeeping.
pub async fn tidy(conn: &mut PgConnection, settings: &MessagingArgs) -> Result<Tidied, sqlx::Error> {
    let archived = sqlx::query_scalar!(
        r#"select archive_events($1, $2) as "archived!""#,
        interval(settings.outbox_retention),
        interval(settings.event_retention),
    )
    .fetch_one(&mut *conn)
    .await?;
    let partitions = sqlx::query!(
        r#"select ensure_partitions($1) as "created!", drop_partitions($2, $3) as "dropped!""#,
        DAYS_AHEAD,
        interval(settings.inbox_retention),
        // A day that could not be archived yet, because it is in use, is not dropped at once.
        interval((settings.outbox_retention * 2).min(settings.inbox_retention)),
    )
    .fetch_one(&mut *conn)
    .await?;
    let kept = || interval(settings.dead_letter_retention);
    let letters = sqlx::query!(
        r#"with gone as (
            delete from dead_letter
            where dead_letter_id in (
                select dead_letter_id from dead_letter where created_at < now() - $1::interval limit 1000
            )
            returning status
        )
        select count(*) as "all!", count(*) filter (where status = 'PENDING') as "pending!"
        from gone"#,
        kept(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let attempts = sqlx::query!(
        "delete from delivery_attempt
        where (consumer, event_id) in (
            select consumer, event_id from delivery_attempt where updated_at < now() - $1::interval limit 1000
        )",
        kept(),
    );
    let publishing = sqlx::query!(
        "delete from outbox_attempt
        where (event_id, attempt) in (
            select event_id, attempt from outbox_attempt where attempted_at < now() - $1::interval limit 1000
        )",
        kept(),
    );
    let acting = sqlx::query!("delete from outbox_action where acted_at < now() - $1::interval", kept());
    let breakers = sqlx::query!("delete from breaker_change where changed_at < now() - $1::interval", kept());
    let replays = sqlx::query!("delete from dead_letter_replay where requested_at < now() - $1::interval", kept());
    let sets = sqlx::query!("delete from frozen_set where selected_at < now() - $1::interval", kept());
    // Leases of replicas that ended without releasing them. An expired lease is free before it is deleted.
    let leases = sqlx::query!("delete from lease where expires_at < now() - interval '1 hour'");
    let mut rows_deleted = letters.all.unsigned_abs();
    for old in [attempts, publishing, acting, breakers, replays, sets, leases] {
        rows_deleted += old.execute(&mut *conn).await?.rows_affected();
    }
    Ok(Tidied {
        partitions_created: partitions.created,
        partitions_dropped: partitions.dropped,
        days_archived: archived,
        rows_deleted,
        dead_letters_forgotten: letters.pending.unsigned_abs(),
    })
}
