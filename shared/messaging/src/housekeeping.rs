//! Housekeeping of the messaging tables, by one replica at a time: partitions are created ahead, archived, and dropped when they are
//! old; rows of other tables are deleted in small batches. An operator can run a round, or see what one would do.

use std::time::Duration;

use serde::Serialize;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Metrics, interval,
    lease::{hold, release},
    periodic::every,
    settings::MessagingArgs,
};

const DAYS_AHEAD: i32 = 7;

/// The lease of the round that is under way. No round takes as long, but one that is dropped keeps it.
const ROUND: &str = "housekeeping round";
const ROUND_LEASE: Duration = Duration::from_secs(90);
/// Several of those statements, each of which is short, archive as many late events a round as can become too old in it.
const LATE_EVENT_STATEMENTS: usize = 10;

/// What one round has done, or would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HousekeepingRound {
    /// Days of inbox and published events, created ahead.
    pub partitions_created: i32,
    /// Days that were older than their retention.
    pub partitions_dropped: i32,
    /// Days of published events that became the archive.
    pub days_archived: i32,
    /// Events that were published after their day became the archive, and followed it, at most 50,000 a round.
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
            Ok(Some(round)) => round.count(&metrics),
            Ok(None) => tracing::debug!("housekeeping is another replica's, or an operator's"),
            Err(error) => tracing::warn!(%error, "housekeeping failed and will be retried"),
        }
    })
    .await;
}

async fn leased_round(
    pool: &PgPool,
    holder: &str,
    settings: &MessagingArgs,
) -> Result<Option<HousekeepingRound>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    if !hold(&mut conn, "housekeeping", holder, settings.housekeeping_every * 2).await? {
        return Ok(None);
    }
    run_round(&mut conn, settings, false).await
}

impl HousekeepingRound {
    /// Counts and logs what was done.
    pub fn count(&self, metrics: &Metrics) {
        if *self != HousekeepingRound::default() {
            metrics.dead_letters_forgotten.inc_by(self.dead_letters_forgotten);
            metrics.partitions_dropped.inc_by(self.partitions_dropped.unsigned_abs().into());
            tracing::info!(round = ?self, "housekeeping");
        }
    }
}

/// Runs a round, or with `dry_run` only says what it would do: the round is rolled back. `None` while another one is under way.
pub async fn run_round(
    conn: &mut PgConnection,
    settings: &MessagingArgs,
    dry_run: bool,
) -> Result<Option<HousekeepingRound>, sqlx::Error> {
    let holder = Uuid::now_v7().to_string();
    if !hold(conn, ROUND, &holder, ROUND_LEASE).await? {
        return Ok(None);
    }
    let round = match dry_run {
        true => rolled_back(conn, settings).await,
        false => round(conn, settings).await,
    };
    if let Err(error) = release(conn, ROUND, &holder).await {
        tracing::warn!(%error, "the lease of a round of housekeeping was not released and will expire");
    }
    round.map(Some)
}

async fn rolled_back(conn: &mut PgConnection, settings: &MessagingArgs) -> Result<HousekeepingRound, sqlx::Error> {
    let mut transaction = conn.begin().await?;
    let round = round(&mut transaction, settings).await?;
    transaction.rollback().await?;
    Ok(round)
}

async fn round(conn: &mut PgConnection, settings: &MessagingArgs) -> Result<HousekeepingRound, sqlx::Error> {
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
    // All with the same limit. The age is compared again, because a row may have changed since it was found. An expired lease, of a
    // replica that ended without releasing it, is free before it is deleted.
    macro_rules! delete_old {
        ($table:literal, $since:literal, $kept:expr) => {
            sqlx::query!(
                "delete from "
                    + $table
                    + " where ctid = any (array(select ctid from "
                    + $table
                    + " where "
                    + $since
                    + " < now() - $1::interval limit 1000)) and "
                    + $since
                    + " < now() - $1::interval",
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
    // Before the days, whose statement locks published events: the relay must not wait for it.
    let mut late_events = 0;
    for _ in 0..LATE_EVENT_STATEMENTS {
        let archived = sqlx::query_scalar!(
            r#"select archive_late_events($1, $2) as "archived!""#,
            interval(settings.outbox_retention),
            interval(settings.event_retention),
        )
        .fetch_one(&mut *conn)
        .await?;
        late_events += archived;
        if archived == 0 {
            break;
        }
    }
    // Last, because a dry run holds the tables' locks until its end.
    let days = sqlx::query_scalar!(
        r#"select archive_events($1, $2) as "days!""#,
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
    Ok(HousekeepingRound {
        partitions_created: partitions.created,
        partitions_dropped: partitions.dropped,
        days_archived: days,
        late_events_archived: late_events,
        rows_deleted,
        dead_letters_forgotten: letters.pending.unsigned_abs(),
    })
}
