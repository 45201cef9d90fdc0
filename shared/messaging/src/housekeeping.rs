//! Housekeeping of the messaging tables, by one replica at a time: partitions are created ahead, archived, and dropped when they are
//! old; rows of other tables are deleted in small batches. An operator can begin a round, or see what one would do.

use std::time::Duration;

use serde::Serialize;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::{Metrics, interval, lease::hold, periodic::every, settings::MessagingArgs};

const DAYS_AHEAD: i32 = 7;

/// The result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tidied {
    /// Days of inbox and published events, created ahead.
    pub partitions_created: i32,
    /// Days that were older than their retention.
    pub partitions_dropped: i32,
    /// Days of published events that became the archive.
    pub days_archived: i32,
    /// Events that were published after their day became the archive, and followed it.
    pub late_events_archived: i32,
    /// Of dead letters, refusals, actions, breakers' changes, frozen sets and leases, at most a thousand of each a round.
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
            Ok(Some(tidied)) => tidied.count(&metrics),
            Ok(None) => {}
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

impl Tidied {
    /// Counts and logs what was done.
    pub fn count(&self, metrics: &Metrics) {
        if *self != Tidied::default() {
            metrics.dead_letters_forgotten.inc_by(self.dead_letters_forgotten);
            metrics.partitions_dropped.inc_by(self.partitions_dropped.unsigned_abs().into());
            tracing::info!(tidied = ?self, "housekeeping");
        }
    }
}

/// What a round would do now: a round that is rolled back.
pub async fn rehearse(conn: &mut PgConnection, settings: &MessagingArgs) -> Result<Tidied, sqlx::Error> {
    let mut transaction = conn.begin().await?;
    let tidied = tidy(&mut transaction, settings).await?;
    transaction.rollback().await?;
    Ok(tidied)
}

/// One round of housekeeping.
pub async fn tidy(conn: &mut PgConnection, settings: &MessagingArgs) -> Result<Tidied, sqlx::Error> {
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
    // All with the same limit. An expired lease, of a replica that ended without releasing it, is free before it is deleted.
    macro_rules! delete_old {
        ($table:literal, $since:literal, $kept:expr) => {
            sqlx::query!(
                "delete from "
                    + $table
                    + " where ctid = any (array(select ctid from "
                    + $table
                    + " where "
                    + $since
                    + " < now() - $1::interval limit 1000))",
                $kept,
            )
        };
    }
    let old = [
        delete_old!("delivery_attempt", "updated_at", kept()),
        delete_old!("outbox_attempt", "attempted_at", kept()),
        delete_old!("outbox_action", "acted_at", kept()),
        delete_old!("breaker_change", "changed_at", kept()),
        delete_old!("dead_letter_replay", "requested_at", kept()),
        delete_old!("frozen_set", "selected_at", kept()),
        delete_old!("lease", "expires_at", interval(Duration::from_secs(3600))),
    ];
    let mut rows_deleted = letters.all.unsigned_abs();
    for rows in old {
        rows_deleted += rows.execute(&mut *conn).await?.rows_affected();
    }
    // Last, because a rehearsal holds the tables' locks until its end.
    let archived = sqlx::query!(
        r#"select archive_events($1, $2) as "days!", archive_late_events($1, $2) as "late_events!""#,
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
    Ok(Tidied {
        partitions_created: partitions.created,
        partitions_dropped: partitions.dropped,
        days_archived: archived.days,
        late_events_archived: archived.late_events,
        rows_deleted,
        dead_letters_forgotten: letters.pending.unsigned_abs(),
    })
}
