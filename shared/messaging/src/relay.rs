//! The relay: publishes committed events from the outbox to the broker, in order, from one replica at a time. It reads rows,
//! publishes them, awaits each acknowledgement and moves the rows; no transaction is open while it waits for the broker.
//! Outages pause it and count no attempts.

mod leader;
mod lease;
mod publish;
mod reconcile;
pub mod target;
mod watermark;

use std::{iter::successors, sync::Arc};

use async_nats::jetstream::context::{RequestError, RequestErrorKind};
use futures_util::{FutureExt, StreamExt};
use sqlx::{PgPool, Postgres, pool::PoolConnection};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{leader::Leader, lease::Lease};
use crate::{
    Outbox, Report, bus::Bus, contention::backoff, error::chain, metrics::Metrics, response_timeout::statement_timeout,
    settings::MessagingArgs,
};

pub use lease::{LeaseState, pause, state};
pub(crate) use publish::publish_once;
pub use publish::runs;
pub use reconcile::OpenEvents;

/// Why the relay paused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    #[error("the database is unavailable")]
    Database(#[from] sqlx::Error),
    #[error("the broker is unavailable: {0}")]
    Broker(String),
    #[error("the broker does not answer: {0}")]
    Silent(String),
    #[error("another relay has taken over")]
    LeaseLost,
    #[error("the stream was restored in an older state; nothing is published until consumer {0} is re-created")]
    ConsumerAhead(String),
    #[error("the stream does not end at the last acknowledged sequence")]
    OutOfStep,
}

/// What to do when NATS is connected but JetStream does not answer: it does not recover from a full disk without a restart.
const RESTART: &str =
    "NATS is connected, and JetStream does not answer. If its disk is or was full, make room and restart nats";

impl RelayError {
    /// Classifies a failed call to the broker.
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
    /// The name of this replica in the relay's lease.
    pub holder: String,
    pub pool: PgPool,
    pub bus: Bus,
    /// Notified of each commit in this process.
    pub committed: Arc<Notify>,
    pub settings: MessagingArgs,
    pub metrics: Metrics,
    /// Finds the events that are needed again when the broker has lost them.
    pub open_events: OpenEvents,
    /// The consumers of this service's stream that [`Topology::run`](crate::topology::Topology::run) re-creates when they are
    /// ahead of it. While one is ahead, nothing is published, because it would skip the next events. Empty by default.
    pub consumers: Vec<String>,
    /// Receives whether the relay works.
    pub report: Report,
}

impl Relay {
    /// The relay of `outbox`, with default settings. It republishes events that the broker has lost if they belong to no saga, or
    /// if `open_events` returns them, which by default returns none.
    pub fn of(outbox: &Outbox) -> Self {
        let origin = &outbox.origin;
        Relay {
            holder: format!("{}-{}", outbox.service(), Uuid::now_v7()),
            pool: outbox.pool.clone(),
            bus: origin.bus.clone(),
            committed: Arc::clone(&origin.committed),
            settings: MessagingArgs::default(),
            metrics: origin.metrics.clone(),
            open_events: |_, _| Box::pin(async { Ok(Vec::new()) }),
            consumers: Vec::new(),
            report: Arc::new(|_| {}),
        }
    }

    /// Publishes the pending events and returns; publishes nothing when another replica is active.
    ///
    /// # Errors
    /// When the database or the broker is unavailable.
    pub async fn run_once(&self) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        let lease = lease::acquire(&mut conn, &self.holder, self.settings.relay_lease);
        if let Some(lease) = statement_timeout(lease).await? {
            let mut leader = Leader::new(self, lease, conn);
            leader.reconcile().await?;
            leader.drain(&CancellationToken::new()).await?;
        }
        Ok(statement_timeout(lease::release(&self.pool, &self.holder)).await?)
    }

    /// Relays until `stop`; acquires the lease when it is free, and releases it at the end.
    pub async fn run(self, stop: CancellationToken) {
        let holder = &self.holder;
        let mut failures = 0;
        while !stop.is_cancelled() {
            let turn = self.turn(&stop).await;
            self.metrics.relay_active.set(0);
            let silent = matches!(turn, Err(RelayError::Silent(_))) && self.bus.is_connected();
            self.metrics.broker_silent.set(i64::from(silent));
            match turn {
                Ok(()) => failures = 0,
                Err(RelayError::LeaseLost) => tracing::warn!(holder, "another relay has taken over"),
                Err(error) => {
                    let reason = if silent { RESTART.to_owned() } else { error.to_string() };
                    (self.report)(Err(&reason));
                    tracing::warn!(holder, error = chain(&error), "the relay failed and pauses before it tries again");
                    self.record_failure(&error, &reason).await;
                    if matches!(error, RelayError::Broker(_) | RelayError::Silent(_)) {
                        self.bus.isolation.is_possible(&self.bus.client).await;
                    }
                    failures += 1;
                    stop.run_until_cancelled(backoff(failures)).await;
                }
            }
        }
        if let Err(error) = statement_timeout(lease::release(&self.pool, holder)).await {
            tracing::warn!(holder, %error, "the relay's lease was not released and will expire");
        }
    }

    /// For operators, who may ask any replica. Without the database nobody can ask, either.
    async fn record_failure(&self, error: &RelayError, reason: &str) {
        if matches!(error, RelayError::Database(_)) {
            return;
        }
        let recorded = statement_timeout(lease::record_failure(&self.pool, &self.holder, reason)).await;
        if let Err(error) = recorded {
            tracing::debug!(%error, "the relay's failure was not recorded");
        }
    }

    /// Is the active relay while the lease lasts; without the lease stands by for a while.
    async fn turn(&self, stop: &CancellationToken) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        let lease = statement_timeout(lease::acquire(&mut conn, &self.holder, self.settings.relay_lease)).await?;
        self.bus.stand_by(lease.is_none());
        match lease {
            Some(lease) => self.lead(lease, conn, stop).await,
            None => {
                drop(conn);
                (self.report)(Ok(()));
                self.stand_by(stop).await;
                Ok(())
            }
        }
    }

    /// Forwards wake-ups to the active relay until it is time to try to acquire the lease again.
    async fn stand_by(&self, stop: &CancellationToken) {
        let until = Instant::now() + self.settings.relay_lease / 6;
        loop {
            tokio::select! {
                () = self.committed.notified() => self.bus.nudge().await,
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
        tracing::info!(holder = leader.lease.holder, epoch = leader.lease.epoch, "this relay is active");
        while !stop.is_cancelled() {
            leader.drain(stop).await?;
            tokio::select! {
                () = self.committed.notified() => {}
                nudge = nudges.next() => if nudge.is_none() {
                    return Err(RelayError::Broker("the connection was closed".to_owned()));
                },
                () = tokio::time::sleep(self.settings.relay_poll) => {}
                () = stop.cancelled() => {}
            }
            // One read of the outbox serves all nudges received so far.
            while let Some(Some(_)) = nudges.next().now_or_never() {}
        }
        Ok(())
    }
}
