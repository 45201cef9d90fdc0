//! The relay: carries committed events from the outbox to the broker, in order, by one replica at a
//! time. Reads rows, publishes them, awaits every receipt, moves the rows; no transaction is open
//! while it talks to the broker. Outages pause it and count against no event.

mod lease;
mod publish;
mod reconcile;
mod watermark;

use std::{
    iter::successors,
    sync::Arc,
    time::{Duration, Instant},
};

use async_nats::jetstream::context::{RequestError, RequestErrorKind};
use futures_util::{FutureExt, StreamExt};
use sqlx::{PgPool, Postgres, pool::PoolConnection};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    lease::Lease,
    publish::{Published, StreamPosition},
    watermark::{LAG, Watermark},
};
use crate::{
    Outbox, Point, Report,
    bus::Bus,
    error::chain,
    metrics::{Metrics, Outcome, TraceLabel},
    outbox::{self, Mover, PendingRow},
    settings::MessagingArgs,
    silence::answered,
    wake::Wake,
};

pub use lease::{LeaseState, pause, state};
pub(crate) use publish::publish_once;
pub use reconcile::OpenEvents;

/// How long the relay waits for more after it has published several events.
const LINGER: Duration = Duration::from_millis(5);
/// How long an event waits that a fault on purpose keeps from leaving.
const HELD_UP: Duration = Duration::from_millis(200);

/// Why the relay paused.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the database is away")]
    Database(#[from] sqlx::Error),
    #[error("the broker is away: {0}")]
    Broker(String),
    #[error("the broker does not answer: {0}")]
    Silent(String),
    #[error("another relay has taken over")]
    LeaseLost,
    #[error(
        "the stream came back in an older state, and consumer {0} has to be made anew before anything is published"
    )]
    ConsumerAhead(String),
    #[error("the stream is not where the last receipt says it is")]
    OutOfStep,
}

/// What helps when NATS is there and JetStream is not: it does not get over a full disk, also not when there is room again.
const RESTART: &str =
    "NATS is connected, and JetStream does not answer. If its disk is or was full, make room and restart nats";

impl RelayError {
    /// What a failed call to the broker means.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let causes = successors(Some(error), |error| error.source());
        let timed_out = |error: &(dyn std::error::Error + 'static)| {
            error.downcast_ref::<RequestError>().is_some_and(|error| error.kind() == RequestErrorKind::TimedOut)
        };
        match causes.into_iter().any(timed_out) {
            true => RelayError::Silent(chain(error)),
            false => RelayError::Broker(chain(error)),
        }
    }
}

/// One replica's relay.
#[derive(Clone)]
pub struct Relay {
    pub pool: PgPool,
    pub bus: Bus,
    pub wake: Arc<Wake>,
    pub settings: MessagingArgs,
    pub metrics: Metrics,
    /// Says which events are needed again when the broker has lost them.
    pub open_events: OpenEvents,
    /// The consumers of this service's stream that `provision keep` puts back; whoever else reads it is on their own.
    pub consumers: Vec<String>,
    /// Hears whether the relay works.
    pub report: Report,
}

impl Relay {
    /// The relay of what `outbox` writes, with usual settings. What the broker has lost it publishes again only where
    /// `open_events` says so.
    pub fn of(outbox: &Outbox) -> Self {
        let origin = &outbox.origin;
        Relay {
            pool: outbox.pool.clone(),
            bus: origin.bus.clone(),
            wake: Arc::clone(&origin.wake),
            settings: MessagingArgs::default(),
            metrics: origin.metrics.clone(),
            open_events: |_, _| Box::pin(async { Ok(Vec::new()) }),
            consumers: Vec::new(),
            report: Arc::new(|_| {}),
        }
    }

    /// Publishes what waits now, and returns; nothing where another replica leads.
    ///
    /// # Errors
    /// When database or broker are away.
    pub async fn run_once(&self) -> Result<(), RelayError> {
        let holder = self.holder();
        let mut conn = self.pool.acquire().await?;
        if let Some(lease) = answered(lease::acquire(&mut conn, &holder, self.settings.relay_lease)).await? {
            let mut leader = Leader::new(self, lease, conn);
            leader.reconcile().await?;
            leader.drain(&CancellationToken::new()).await?;
        }
        Ok(answered(lease::release(&self.pool, &holder)).await?)
    }

    fn holder(&self) -> String {
        format!("{}-{}", self.bus.service, Uuid::now_v7())
    }

    /// Relays until `stop`; takes the lease when it is free, and gives it back at the end.
    pub async fn run(self, stop: CancellationToken) {
        let holder = self.holder();
        let mut failures = 0;
        while !stop.is_cancelled() {
            let turn = self.turn(&holder, &stop).await;
            self.metrics.relay_active.set(0);
            let silent = matches!(turn, Err(RelayError::Silent(_))) && self.bus.is_connected();
            self.metrics.broker_silent.set(i64::from(silent));
            match turn {
                Ok(()) => failures = 0,
                Err(RelayError::LeaseLost) => tracing::warn!(holder, "another relay has taken over"),
                Err(error) => {
                    let told = if silent { RESTART.to_owned() } else { error.to_string() };
                    (self.report)(Err(&told));
                    tracing::warn!(holder, error = chain(&error), "the relay pauses");
                    failures += 1;
                    let limit = Duration::from_millis(50 << failures.min(5)).min(Duration::from_secs(1));
                    pause_for(limit.mul_f64(rand::random_range(0.5..=1.0)), &stop).await;
                }
            }
        }
        if let Err(error) = answered(lease::release(&self.pool, &holder)).await {
            tracing::warn!(holder, %error, "the relay's lease was not given back and will expire");
        }
    }

    /// Leads while the lease lasts; else stands by for a while.
    async fn turn(&self, holder: &str, stop: &CancellationToken) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        match answered(lease::acquire(&mut conn, holder, self.settings.relay_lease)).await? {
            Some(lease) => self.lead(lease, conn, stop).await,
            None => {
                drop(conn);
                (self.report)(Ok(()));
                self.stand_by(stop).await;
                Ok(())
            }
        }
    }

    /// Passes wake-ups on to the active relay until it is time to try for the lease again.
    async fn stand_by(&self, stop: &CancellationToken) {
        let until = tokio::time::Instant::now() + self.settings.relay_lease / 3;
        loop {
            tokio::select! {
                () = self.wake.wait() => self.bus.nudge().await,
                () = tokio::time::sleep_until(until) => return,
                () = stop.cancelled() => return,
            }
        }
    }

    async fn lead(
        &self,
        lease: Lease,
        conn: PoolConnection<Postgres>,
        stop: &CancellationToken,
    ) -> Result<(), RelayError> {
        let mut leader = Leader::new(self, lease, conn);
        let subject = self.bus.service.nudge_subject();
        let mut nudges = self.bus.client.subscribe(subject).await.map_err(|e| RelayError::Broker(e.to_string()))?;
        leader.reconcile().await?;
        self.metrics.relay_active.set(1);
        self.metrics.relay_takeovers.inc();
        tracing::info!(holder = leader.lease.holder, epoch = leader.lease.epoch, "this relay is the active one");
        while !stop.is_cancelled() {
            leader.drain(stop).await?;
            tokio::select! {
                () = self.wake.wait() => {}
                nudge = nudges.next() => if nudge.is_none() {
                    return Err(RelayError::Broker("the connection was closed".to_owned()));
                },
                () = tokio::time::sleep(self.settings.relay_poll) => {}
                () = stop.cancelled() => {}
            }
            // One reading answers all of them.
            while let Some(Some(_)) = nudges.next().now_or_never() {}
        }
        Ok(())
    }
}

/// The active relay between taking the lease and losing it.
struct Leader<'a> {
    relay: &'a Relay,
    lease: Lease,
    /// Of its own: a pool would test it after each statement.
    conn: PoolConnection<Postgres>,
    stream: String,
    position: StreamPosition,
    watermark: Watermark,
    /// Publish one by one: after an uncertain outcome some rows may be stored already.
    singly: bool,
    renewed: Instant,
    reconciled: Instant,
    connects: u64,
}

impl<'a> Leader<'a> {
    fn new(relay: &'a Relay, lease: Lease, conn: PoolConnection<Postgres>) -> Self {
        let now = Instant::now();
        Leader {
            relay,
            stream: relay.bus.service.stream(),
            lease,
            conn,
            position: StreamPosition::default(),
            watermark: Watermark::new(now),
            singly: false,
            renewed: now,
            reconciled: now,
            connects: 0,
        }
    }

    /// Publishes until nothing is pending.
    async fn drain(&mut self, stop: &CancellationToken) -> Result<(), RelayError> {
        while !stop.is_cancelled() {
            // Before reading: it may put older events back.
            self.keep_up().await?;
            // One by one takes a round trip each: few enough not to outlive the lease.
            let limit = self.relay.settings.relay_batch.min(if self.singly { 100 } else { u16::MAX });
            // What comes of age while the question is answered is for the next one.
            let asked = Instant::now();
            if self.watermark.may_rise(asked) && !answered(outbox::old_writer(&mut self.conn, LAG)).await? {
                self.watermark.rise(asked);
            }
            let floor = self.watermark.floor(Instant::now());
            let next = outbox::next(&mut self.conn, self.lease.epoch, floor, i64::from(limit));
            let mut rows = answered(next).await?;
            let mut all = rows.len() < usize::from(limit);
            all &= self.isolate(&mut rows);
            let (read, end) = (Instant::now(), rows.iter().map(|r| r.position).max());
            let gone = rows.is_empty() || self.publish(&rows).await?;
            self.watermark.read(read, floor, end, all, gone);
            if rows.len() > 1 && all {
                // Where several come at a time, more are about to, and fewer, larger batches cost less for everybody.
                tokio::time::sleep(LINGER).await;
            }
            if all && gone {
                self.works();
                break;
            }
        }
        Ok(())
    }

    /// The broker does what it is asked for.
    fn works(&self) {
        self.relay.metrics.broker_silent.set(0);
        (self.relay.report)(Ok(()));
    }

    /// Returns whether all rows are gone.
    async fn publish(&mut self, rows: &[PendingRow]) -> Result<bool, RelayError> {
        let began = Instant::now();
        let published = publish::publish(&self.relay.bus, rows, self.position, self.singly).await;
        self.relay.metrics.outbox_publish_duration.observe(began.elapsed().as_secs_f64());
        self.settle(rows, published).await
    }

    /// While a fault is armed that concerns a row, the row is published alone: it shares its fate with no other.
    /// Returns whether all rows are left.
    fn isolate(&self, rows: &mut Vec<PendingRow>) -> bool {
        let hooks = &self.relay.bus.hooks;
        if !hooks.is_armed() {
            return true;
        }
        let before = rows.len();
        let points = [Point::BusPublish, Point::AfterPublishBeforeMark];
        let concerned = rows.iter().position(|row| hooks.concerns(&points, || row.subject()));
        rows.truncate(concerned.map_or(before, |place| place.max(1)));
        rows.len() == before
    }

    /// Moves what was acknowledged, and deals with what stopped the batch, if anything did; returns whether all rows are
    /// gone.
    async fn settle(&mut self, rows: &[PendingRow], published: Published) -> Result<bool, RelayError> {
        let subject = || rows.first().map(PendingRow::subject).unwrap_or_default();
        if self.relay.bus.hooks.at(Point::AfterPublishBeforeMark, subject).await.is_err() {
            if let Some(row) = rows.first() {
                self.hold_up(row.event_id).await?;
            }
            return Ok(false);
        }
        let mover = Mover {
            holder: &self.lease.holder,
            epoch: self.lease.epoch,
            lease: self.relay.settings.relay_lease,
            stream: &self.stream,
            stream_epoch: self.position.epoch,
        };
        if !answered(outbox::move_published(&mut self.conn, &mover, &published.receipts)).await? {
            return Err(RelayError::LeaseLost);
        }
        if !published.receipts.is_empty() {
            self.renewed = Instant::now();
            self.works();
        }
        self.count(rows, &published);
        self.position.last_sequence = published.last_sequence;
        self.singly = published.stop.is_some();
        let Some(stop) = published.stop else { return Ok(true) };
        match stop {
            publish::Stop::Refused { event_id, error } => {
                self.refused(event_id, &error).await?;
                self.reconcile().await?;
            }
            publish::Stop::Held { event_id } => self.hold_up(event_id).await?,
            publish::Stop::OutOfStep => {
                let before = self.position;
                self.reconcile().await?;
                // Behind a duplicate, which takes no place, a batch is out of step by itself; one by one it is not.
                if self.position == before && published.duplicates == 0 {
                    // Something else writes to our stream, or will not let us.
                    return Err(RelayError::OutOfStep);
                }
            }
            publish::Stop::Away(error) => return Err(RelayError::Broker(error)),
            publish::Stop::Silent(error) => return Err(RelayError::Silent(error)),
        }
        Ok(false)
    }

    fn count(&self, rows: &[PendingRow], published: &Published) {
        let (metrics, receipts) = (&self.relay.metrics, published.receipts.len() as u64);
        metrics.outbox_published.inc_by(receipts);
        metrics.outbox_batch_size.observe(rows.len() as f64);
        let attempts = |outcome: &'static str, count: u64| {
            metrics.outbox_attempts.get_or_create_owned(&Outcome { outcome }).inc_by(count);
        };
        attempts("acknowledged", receipts - published.duplicates);
        attempts("duplicate", published.duplicates);
        match published.stop {
            Some(publish::Stop::Refused { .. }) => attempts("refused", 1),
            Some(publish::Stop::OutOfStep) => attempts("out_of_step", 1),
            Some(publish::Stop::Away(_) | publish::Stop::Silent(_) | publish::Stop::Held { .. }) => attempts("away", 1),
            None => {}
        }
        #[expect(clippy::disallowed_methods, reason = "a measurement, on which nothing depends")]
        let now = time::OffsetDateTime::now_utc();
        // What is published once more is old, and says nothing about the way from the transaction to the broker.
        let first_time = rows.iter().take(published.receipts.len()).filter(|row| row.republication == 0);
        for (place, row) in first_time.enumerate() {
            // One exemplar a batch is enough to find a trace.
            let exemplar = if place == 0 { row.trace_id().map(TraceLabel::new) } else { None };
            let age = (now - row.created_at).as_seconds_f64().max(0.0);
            metrics.outbox_age_at_publish.observe(age, exemplar, None);
        }
    }

    /// A fault keeps this event from leaving: it waits with its aggregate's followers, and the others go on.
    async fn hold_up(&mut self, event_id: Uuid) -> Result<(), RelayError> {
        answered(outbox::postpone(&self.relay.pool, event_id, HELD_UP)).await?;
        self.singly = true;
        self.reconcile().await
    }

    async fn refused(&self, event_id: Uuid, error: &str) -> Result<(), RelayError> {
        let settings = &self.relay.settings;
        let wait = Duration::from_millis(rand::random_range(200..=400));
        let max = settings.relay_max_attempts;
        let count = outbox::count_refusal(&self.relay.pool, &self.lease.holder, event_id, error, wait, max);
        let parked = answered(count).await?;
        tracing::warn!(%event_id, error, parked, "the broker refuses this event");
        if parked {
            self.relay.metrics.outbox_parked.inc();
        }
        Ok(())
    }

    /// What a leader does besides publishing: renew the lease, compare receipts with the stream.
    async fn keep_up(&mut self) -> Result<(), RelayError> {
        let settings = &self.relay.settings;
        if self.renewed.elapsed() > settings.relay_lease / 3 {
            if !answered(lease::renew(&mut self.conn, &self.lease, settings.relay_lease)).await? {
                return Err(RelayError::LeaseLost);
            }
            self.renewed = Instant::now();
        }
        if self.reconciled.elapsed() > settings.reconcile_every || self.connects != self.relay.bus.connects() {
            self.reconcile().await?;
        }
        Ok(())
    }

    async fn reconcile(&mut self) -> Result<(), RelayError> {
        self.connects = self.relay.bus.connects();
        let outcome = reconcile::reconcile(self.relay, &self.lease, &self.stream).await?;
        if outcome.republished > 0 {
            self.relay.metrics.outbox_republished.inc_by(outcome.republished);
            self.watermark = Watermark::new(Instant::now());
        }
        // One by one takes a round trip each, and whoever waits has waited for long enough when the broker has lost its data.
        self.singly |= outcome.unreceipted;
        self.position = outcome.position;
        self.reconciled = Instant::now();
        Ok(())
    }
}

async fn pause_for(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}
