//! The active relay: reads rows, publishes them, moves acknowledged rows, and handles failures.

use std::time::{Duration, Instant};

use sqlx::{Postgres, pool::PoolConnection};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Relay, RelayError,
    lease::{self, Lease},
    publish::{JetStream, Obstacle, ROUND_TRIPS, StreamPosition},
    reconcile,
    target::{Published, Stop, Target},
    watermark::{LAG, Watermark},
};
use crate::{
    FaultPoint, gather,
    metrics::{Outcome, TraceLabel},
    outbox::{self, Acknowledgement, Mover, PendingRow},
    response_timeout::statement_timeout,
};

/// The longest time that it leaves events to gather before its next batch.
const MOST_GATHERING: Duration = Duration::from_millis(10);
/// The delay of an event that an injected fault keeps from being published.
const INJECTED_DELAY: Duration = Duration::from_millis(200);

/// How often the relay looks for parked events that are due.
const REPLAY_CHECK: Duration = Duration::from_secs(1);

/// The active relay from acquiring the lease to losing it.
pub(super) struct Leader<'a> {
    relay: &'a Relay,
    pub(super) lease: Lease,
    /// Held throughout, because a pool would test it after each statement: a part of 987 sagas/s instead of 821
    /// (decision 49).
    conn: PoolConnection<Postgres>,
    stream: String,
    target: JetStream<'a>,
    watermark: Watermark,
    renewed: Instant,
    reconciled: Instant,
    replayed: Instant,
    connects: u64,
}

impl<'a> Leader<'a> {
    pub(super) fn new(relay: &'a Relay, lease: Lease, conn: PoolConnection<Postgres>) -> Self {
        let now = Instant::now();
        Leader {
            relay,
            stream: relay.bus.service.stream(),
            lease,
            conn,
            target: JetStream {
                bus: &relay.bus,
                position: StreamPosition::default(),
                singly: false,
                duplicates: 0,
                time: relay.settings.relay_lease / 4,
            },
            watermark: Watermark::new(now),
            renewed: now,
            reconciled: now,
            replayed: now,
            connects: 0,
        }
    }

    /// Publishes until nothing is pending.
    pub(super) async fn drain(&mut self, stop: &CancellationToken) -> Result<(), RelayError> {
        while !stop.is_cancelled() {
            // Before reading, because it may put older events back.
            self.maintain().await?;
            let limit = self.relay.settings.relay_batch.min(if self.target.singly { ROUND_TRIPS } else { u16::MAX });
            // Ends that become old enough during the query are left for the next one.
            let asked = Instant::now();
            if self.watermark.may_rise(asked) && !statement_timeout(outbox::old_writer(&mut self.conn, LAG)).await? {
                self.watermark.rise(asked);
            }
            let floor = self.watermark.floor(Instant::now());
            let next = outbox::next(&mut self.conn, self.lease.epoch, floor, i64::from(limit));
            let mut rows = statement_timeout(next).await?;
            let mut all = rows.len() < usize::from(limit);
            all &= self.isolate(&mut rows);
            let (read, end) = (Instant::now(), rows.iter().map(|r| r.position).max());
            let gone = rows.is_empty() || self.publish(&rows).await?;
            self.watermark.read(read, floor, end, all, gone);
            // No sleep for a single one: the shortest may take a millisecond.
            if rows.len() > 1 && all {
                tokio::time::sleep(gather::window(rows.len(), MOST_GATHERING)).await;
            }
            if all && gone {
                self.report_working().await?;
                break;
            }
        }
        Ok(())
    }

    async fn report_working(&mut self) -> Result<(), RelayError> {
        self.relay.metrics.broker_silent.set(0);
        (self.relay.report)(Ok(()));
        if self.lease.has_failure {
            statement_timeout(lease::clear_failure(&mut self.conn, &self.lease)).await?;
            self.lease.has_failure = false;
        }
        Ok(())
    }

    /// Publishes the rows; returns whether all of them were moved.
    async fn publish(&mut self, rows: &[PendingRow]) -> Result<bool, RelayError> {
        let began = Instant::now();
        let published = self.target.publish(rows).await;
        self.relay.metrics.outbox_publish_duration.observe(began.elapsed().as_secs_f64());
        if !published.receipts.is_empty() {
            self.relay.bus.isolation.is_over();
        }
        self.record_acks(rows, published).await
    }

    /// Publishes a row alone that an armed fault concerns, so that the fault affects no other. Returns whether all rows are kept.
    fn isolate(&self, rows: &mut Vec<PendingRow>) -> bool {
        let faults = &self.relay.bus.faults;
        if !faults.is_armed() {
            return true;
        }
        let before = rows.len();
        let points = [FaultPoint::BusPublish, FaultPoint::AfterPublishBeforeMark];
        let concerned = rows.iter().position(|row| faults.concerns(&points, || row.subject()));
        rows.truncate(concerned.map_or(before, |place| place.max(1)));
        rows.len() == before
    }

    /// Moves acknowledged rows and handles the reason why the batch stopped, if any. Returns whether all rows were moved.
    async fn record_acks(
        &mut self,
        rows: &[PendingRow],
        published: Published<Acknowledgement, Obstacle>,
    ) -> Result<bool, RelayError> {
        let subject = || rows.first().map(PendingRow::subject).unwrap_or_default();
        if self.relay.bus.faults.at(FaultPoint::AfterPublishBeforeMark, subject).await.is_err() {
            if let Some(row) = rows.first() {
                self.postpone(row.event_id).await?;
            }
            return Ok(false);
        }
        let mover = Mover {
            holder: &self.lease.holder,
            epoch: self.lease.epoch,
            lease: self.relay.settings.relay_lease,
            stream: &self.stream,
            stream_epoch: self.target.position.epoch,
        };
        if !statement_timeout(outbox::move_published(&mut self.conn, &mover, &published.receipts)).await? {
            return Err(RelayError::LeaseLost);
        }
        if !published.receipts.is_empty() {
            self.renewed = Instant::now();
            self.report_working().await?;
        }
        self.count(rows, &published);
        let stop = published.stops.into_iter().next();
        self.target.singly = stop.is_some();
        let Some(stop) = stop else { return Ok(published.receipts.len() == rows.len()) };
        match stop {
            Stop::Refused { event_id, error } => {
                self.park_refused(event_id, &error).await?;
                self.reconcile().await?;
            }
            Stop::NotNow { event_id, obstacle: Obstacle::Injected } => self.postpone(event_id).await?,
            Stop::NotNow { obstacle: Obstacle::OutOfStep, .. } => {
                let before = self.target.position;
                self.reconcile().await?;
                // A duplicate takes no sequence, so the rest of a batch behind it is out of step; one by one it is not.
                if self.target.position == before && self.target.duplicates == 0 {
                    // Another program writes to the stream or prevents writes.
                    return Err(RelayError::OutOfStep);
                }
            }
            Stop::NotNow { obstacle: Obstacle::Away(error), .. } => return Err(RelayError::Broker(error)),
            Stop::NotNow { obstacle: Obstacle::Silent(error), .. } => return Err(RelayError::Silent(error)),
        }
        Ok(false)
    }

    fn count(&self, rows: &[PendingRow], published: &Published<Acknowledgement, Obstacle>) {
        let (metrics, acks) = (&self.relay.metrics, published.receipts.len() as u64);
        metrics.outbox_published.inc_by(acks);
        metrics.outbox_batch_size.observe(rows.len() as f64);
        let attempts = |outcome: &'static str, count: u64| {
            metrics.outbox_attempts.get_or_create_owned(&Outcome { outcome }).inc_by(count);
        };
        attempts("acknowledged", acks - self.target.duplicates);
        attempts("duplicate", self.target.duplicates);
        for stop in &published.stops {
            match stop {
                Stop::Refused { .. } => attempts("refused", 1),
                Stop::NotNow { obstacle: Obstacle::OutOfStep, .. } => attempts("out_of_step", 1),
                Stop::NotNow { .. } => attempts("away", 1),
            }
        }
        for row in rows.iter().take(published.receipts.len()).filter(|row| row.attempts > 0) {
            metrics.outbox_retries_helped.inc();
            let attempts = row.attempts.saturating_add(1);
            tracing::info!(event_id = %row.event_id, saga_id = ?row.saga_id, attempts, "published after {attempts} attempts");
        }
        #[expect(clippy::disallowed_methods, reason = "a measurement; no behaviour depends on it")]
        let now = time::OffsetDateTime::now_utc();
        // A republished event is old and says nothing about the latency from the transaction to the broker.
        let first_time = rows.iter().take(published.receipts.len()).filter(|row| row.republication == 0);
        for (place, row) in first_time.enumerate() {
            // One exemplar per batch is enough to find a trace.
            let exemplar = if place == 0 { row.trace_id().map(TraceLabel::new) } else { None };
            let age = (now - row.created_at).as_seconds_f64().max(0.0);
            metrics.outbox_age_at_publish.observe(age, exemplar, None);
        }
    }

    /// An injected fault keeps this event from being published: it is delayed with the later events of its aggregate only.
    async fn postpone(&mut self, event_id: Uuid) -> Result<(), RelayError> {
        statement_timeout(outbox::postpone(&self.relay.pool, event_id, INJECTED_DELAY)).await?;
        self.target.singly = true;
        self.reconcile().await
    }

    async fn park_refused(&self, event_id: Uuid, error: &str) -> Result<(), RelayError> {
        statement_timeout(outbox::park(&self.relay.pool, &self.lease.holder, event_id, error)).await?;
        tracing::warn!(%event_id, error, "the broker refuses this event, which is parked");
        self.relay.metrics.outbox_parked.inc();
        Ok(())
    }

    /// Renews the lease, requeues parked events and reconciles with the stream when they are due.
    async fn maintain(&mut self) -> Result<(), RelayError> {
        let settings = &self.relay.settings;
        if self.renewed.elapsed() > settings.relay_lease / 4 {
            if !statement_timeout(lease::renew(&mut self.conn, &self.lease, settings.relay_lease)).await? {
                return Err(RelayError::LeaseLost);
            }
            self.renewed = Instant::now();
        }
        if let Some(after) = settings.outbox_parked_replay_after
            && self.replayed.elapsed() > REPLAY_CHECK
        {
            let events = statement_timeout(outbox::replay_parked(&mut self.conn, self.lease.epoch, after)).await?;
            if events > 0 {
                tracing::info!(events, "parked events are tried again");
            }
            self.replayed = Instant::now();
        }
        if self.reconciled.elapsed() > settings.reconcile_every || self.connects != self.relay.bus.connects() {
            self.reconcile().await?;
        }
        Ok(())
    }

    pub(super) async fn reconcile(&mut self) -> Result<(), RelayError> {
        self.connects = self.relay.bus.connects();
        let outcome = reconcile::reconcile(self.relay, &self.lease, &self.stream).await?;
        if outcome.republished > 0 {
            self.relay.metrics.outbox_republished.inc_by(outcome.republished);
            self.watermark = Watermark::new(Instant::now());
        }
        // The stream may have some of the rows: one by one, each is recognised as a duplicate.
        self.target.singly |= outcome.has_unrecorded_events;
        self.target.position = outcome.position;
        self.reconciled = Instant::now();
        Ok(())
    }
}
