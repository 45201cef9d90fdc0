//! The runner: takes the next published events, offers them to the target, and moves the position when the target has answered. One
//! replica does it at a time. No transaction is open while it waits for the target.

use std::{collections::HashSet, pin::pin, time::Duration};

use messaging::{
    outbox::{PublishedRow, published_after},
    relay::target::{PendingRow, Published, Target},
    statement_timeout,
};
use saga::Retry;
use sqlx::{PgConnection, PgPool};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Obstacle, WebhookArgs, held,
    position::{self, Lease},
    settle::{Aggregate, Held, aggregate, away, settle},
};

/// How many events are offered at a time; after a crash so many may be posted again.
const BATCH: u16 = 64;
/// How long to wait for further events.
const POLL: Duration = Duration::from_millis(250);

/// One replica's runner.
#[derive(Debug)]
pub struct Runner<T> {
    holder: String,
    pool: PgPool,
    target: T,
    retry: Retry,
    lease: Duration,
    /// The epoch in which this runner has offered the events below.
    epoch: i64,
    /// Events after the position that the target has accepted: not offered again while this runner has the lease.
    accepted: HashSet<Uuid>,
    /// Whether the target accepted nothing of what it was offered last.
    failing: bool,
}

/// What a round has come to.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    /// More may be due at once.
    Offered,
    Idle,
    /// Another replica has the lease.
    StandBy,
    /// The target is away.
    Away,
}

impl<T: Target<Receipt = Uuid, Obstacle = Obstacle> + Send> Runner<T> {
    /// `holder` names the replica in the lease.
    pub fn new(holder: String, pool: PgPool, target: T, settings: &WebhookArgs) -> Self {
        let (retry, lease) = (settings.retry(), settings.webhook_lease);
        Runner { holder, pool, target, retry, lease, epoch: 0, accepted: HashSet::new(), failing: false }
    }

    /// Posts until `stop`; acquires the lease when it is free, and releases it at the end.
    pub async fn run(mut self, stop: CancellationToken) {
        // Shorter than the lease, which is renewed after it.
        let outage = Retry { initial: POLL, max: self.lease / 2, ..self.retry };
        let mut failures = 0;
        while !stop.is_cancelled() {
            let round = self.round().await;
            failures = if matches!(round, Err(_) | Ok(Round::Away)) { failures + 1 } else { 0 };
            let wait = match round {
                Ok(Round::Offered) => continue,
                Ok(Round::Idle) => POLL,
                Ok(Round::StandBy) => self.lease / 4,
                Ok(Round::Away) => outage.bound(failures).mul_f64(jitter()),
                Err(error) => {
                    tracing::warn!(%error, "the webhook pauses: the database is unavailable");
                    outage.bound(failures).mul_f64(jitter())
                }
            };
            stop.run_until_cancelled(sleep(wait)).await;
        }
        if let Err(error) = statement_timeout(position::release(&self.pool, &self.holder)).await {
            tracing::warn!(%error, "the webhook's lease was not released and will expire");
        }
    }

    /// Offers the held events that are due, else the next ones. No connection is kept while the target answers.
    async fn round(&mut self) -> Result<Round, sqlx::Error> {
        let mut conn = self.pool.acquire().await?;
        let lease = statement_timeout(position::hold(&mut conn, &self.holder, self.lease)).await?;
        let Some(lease) = lease else { return Ok(Round::StandBy) };
        if lease.epoch != self.epoch {
            let Lease { holder, epoch, ordinal } = &lease;
            tracing::info!(holder, epoch, ordinal, "this replica posts to the webhook");
            self.epoch = lease.epoch;
            self.accepted.clear();
        }
        let due = statement_timeout(held::due(&mut conn, i64::from(BATCH))).await?;
        if !due.is_empty() {
            drop(conn);
            return self.offer_held(&lease, due).await;
        }
        // While nothing is accepted, those that failed are enough to find out when something is.
        if self.failing && statement_timeout(held::any_waits(&mut conn)).await? {
            return Ok(Round::Idle);
        }
        let rows = statement_timeout(published_after(&mut conn, lease.ordinal, i32::from(BATCH))).await?;
        if rows.is_empty() {
            return Ok(Round::Idle);
        }
        let blocked = statement_timeout(held::blocked(&mut conn, &rows)).await?.into_iter().collect();
        // What it has read is posted when a crash cannot undo it any more, and give its ordinals to others: moves wait for no disk,
        // and this renewal waits for them.
        if statement_timeout(position::hold(&mut conn, &self.holder, self.lease)).await?.is_none() {
            return Ok(Round::StandBy);
        }
        drop(conn);
        self.offer(&lease, &rows, blocked).await
    }

    async fn offer(
        &mut self,
        lease: &Lease,
        rows: &[PublishedRow],
        blocked: HashSet<Aggregate>,
    ) -> Result<Round, sqlx::Error> {
        let is_free =
            |row: &&PublishedRow| !self.accepted.contains(&row.event.event_id) && !blocked.contains(&aggregate(row));
        let events: Vec<_> = rows.iter().filter(is_free).map(|row| row.event.clone()).collect();
        let Some(published) = self.publish(lease, &events).await? else { return Ok(Round::StandBy) };
        self.accepted.extend(&published.receipts);
        let settled = settle(rows, &blocked, &self.accepted, &published.stops);
        let mut conn = self.pool.acquire().await?;
        if !statement_timeout(position::advance(&mut conn, lease, &settled, wait(&self.retry, 1))).await? {
            return Ok(Round::StandBy);
        }
        for row in rows.iter().take_while(|row| Some(row.ordinal) <= settled.position) {
            self.accepted.remove(&row.event.event_id);
        }
        for Held { row, why } in &settled.held {
            tracing::warn!(event_id = %row.event.event_id, ?why, "an event is held back from the webhook");
        }
        self.conclude(&mut conn, lease, &published).await
    }

    async fn offer_held(&mut self, lease: &Lease, due: Vec<PublishedRow>) -> Result<Round, sqlx::Error> {
        let events: Vec<_> = due.into_iter().map(|row| row.event).collect();
        let Some(published) = self.publish(lease, &events).await? else { return Ok(Round::StandBy) };
        let mut conn = self.pool.acquire().await?;
        let retry = self.retry;
        let recorded = held::record(&mut conn, lease, &events, &published, |attempts| wait(&retry, attempts));
        match statement_timeout(recorded).await? {
            true => self.conclude(&mut conn, lease, &published).await,
            false => Ok(Round::StandBy),
        }
    }

    /// Publishes, and renews the lease meanwhile; `None` when it was lost.
    async fn publish(
        &mut self,
        lease: &Lease,
        events: &[PendingRow],
    ) -> Result<Option<Published<Uuid, Obstacle>>, sqlx::Error> {
        let mut publishing = pin!(self.target.publish(events));
        loop {
            tokio::select! {
                published = &mut publishing => return Ok(Some(published)),
                () = sleep(self.lease / 3) => {
                    let mut conn = self.pool.acquire().await?;
                    let held = statement_timeout(position::hold(&mut conn, &self.holder, self.lease)).await?;
                    if held.is_none_or(|held| held.epoch != lease.epoch) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn conclude(
        &mut self,
        conn: &mut PgConnection,
        lease: &Lease,
        published: &Published<Uuid, Obstacle>,
    ) -> Result<Round, sqlx::Error> {
        if !published.receipts.is_empty() || !published.stops.is_empty() {
            self.failing = published.receipts.is_empty();
        }
        let Some(error) = away(published) else { return Ok(Round::Offered) };
        tracing::warn!(error, "the webhook pauses: the endpoint is away");
        statement_timeout(position::record_failure(conn, lease, error)).await?;
        Ok(Round::Away)
    }
}

/// The wait after so many failed attempts; `None` parks the event.
fn wait(retry: &Retry, attempts: u32) -> Option<Duration> {
    (attempts < retry.attempts).then(|| retry.bound(attempts).mul_f64(jitter()))
}

/// "Full jitter", as in the crate `resilience`.
fn jitter() -> f64 {
    rand::random_range(0.0..=1.0)
}
