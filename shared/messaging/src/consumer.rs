//! The consumer of one step: pulls messages, passes them to the step as one batch, and acknowledges what is committed. Its
//! batches grow with the load; a batch that fails is split until the failing event is alone. While the database or the broker is
//! unavailable it pauses and counts no attempts. While the step's circuit breaker is open it pulls nothing; half-open, as many
//! events as the breaker has probes. Of several replicas, one consumes, and the others stand by.

mod answer;
mod batch;
mod control;
mod helped;
mod intake;
mod measure;
mod pull;
mod standby;
mod unacked;
mod unread;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_nats::jetstream::{ErrorCode, consumer::PullConsumer, stream::ConsumerErrorKind};
use futures_util::{StreamExt, future::join_all};
use resilience::{Breaker, Breakers, Overrides, Policy, State};
use saga::Service;
use sqlx::PgPool;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, interval, interval_at, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use self::{pull::Pull, standby::Standby, unacked::Unacked};
use crate::{
    Metrics, Outbox, Report, Subscription, bus::Bus, contention::backoff, error::chain, gather, settings::MessagingArgs,
};

pub use control::{BrokerSide, ConsumerState, broker_side, pause, state};
pub use intake::Intake;

/// The longest time that a consumer leaves events to gather before its next batch.
const MOST_GATHERING: Duration = Duration::from_millis(40);
/// How often a paused consumer checks whether it is resumed.
const PAUSED_POLL: Duration = Duration::from_millis(250);
/// How often the consumer of a half-open breaker looks for events to probe with.
const PROBE_POLL: Duration = Duration::from_millis(250);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A step's consumer on one stream. A step whose event has several publishers has one consumer for each.
#[derive(Clone)]
pub struct Consumer {
    pub subscription: Subscription,
    pub publisher: Service,
    pub bus: Bus,
    pub pool: PgPool,
    pub settings: MessagingArgs,
    pub metrics: Metrics,
    /// The retry and time limits of the step in this deployment.
    pub policy: Policy,
    /// The step's breaker. [`Consumer::new`] makes a new one; give all consumers of a step in a process the same.
    pub breaker: Breaker,
    pub report: Report,
}

impl Consumer {
    /// A consumer of the stream of `publisher`, with the step's own policy and default settings.
    pub fn new(outbox: &Outbox, subscription: Subscription, publisher: Service) -> Self {
        let (origin, step) = (&outbox.origin, subscription.step);
        Consumer {
            subscription,
            publisher,
            bus: origin.bus.clone(),
            pool: outbox.pool.clone(),
            settings: MessagingArgs::default(),
            metrics: origin.metrics.clone(),
            policy: Policy::of(step),
            breaker: Breakers::new(true, Overrides::default()).of(step),
            report: Arc::new(|_| {}),
        }
    }

    /// Consumes until `stop`; batches in progress are finished first.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut failures: u32 = 0;
        while !stop.is_cancelled() {
            if this.wait_until_allowed(&stop).await {
                failures = match this.consume(&stop).await {
                    Ok(()) => 0,
                    Err(failure) => {
                        let (Failure::Broker(error) | Failure::Other(error)) = &failure;
                        (this.report)(Err(error));
                        tracing::warn!(
                            consumer = this.name(),
                            error,
                            "the consumer failed and pauses before it tries again"
                        );
                        if matches!(failure, Failure::Broker(_)) {
                            this.bus.isolation.is_possible(&this.bus.client).await;
                        }
                        failures + 1
                    }
                };
            }
            if failures > 0 {
                stop.run_until_cancelled(backoff(failures)).await;
            }
        }
    }

    pub fn name(&self) -> String {
        self.subscription.step.consumer()
    }

    /// Returns true when the consumer may run. Otherwise (paused by an operator, or the database is unavailable) waits a moment.
    async fn wait_until_allowed(&self, stop: &CancellationToken) -> bool {
        match control::is_paused(&self.pool, &self.name()).await {
            Ok(false) => return true,
            Ok(true) => (self.report)(Ok(())),
            Err(error) => (self.report)(Err(&format!("the database is unavailable: {error}"))),
        }
        stop.run_until_cancelled(sleep(PAUSED_POLL)).await;
        false
    }

    /// Consumes as the breaker permits: everything, a few probes, or nothing until it is time to probe. Returns when it is to
    /// stop or to check again what is permitted.
    async fn consume(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), Failure> {
        let permits = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            // Check again whether an operator has paused the consumer.
            () = sleep(PAUSED_POLL) => return Ok(()),
            permits = self.breaker.closed_or_probing() => permits,
        };
        match permits {
            u32::MAX => self.pull(stop).await,
            permits => self.probe(permits, stop).await,
        }
    }

    /// Pulls and processes batches until it is stopped, paused or fails.
    async fn pull(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), Failure> {
        let (_, progress) = self.find().await?;
        let mut pull = Pull::begin(&self.bus, &self.publisher.stream(), &self.name()).await?;
        self.works();
        // Messages that have arrived and wait: two batches at most, including outstanding ones.
        let (room, mut prefetched) = (self.settings.consumer_batch * 2, VecDeque::new());
        let mut in_progress = JoinSet::new();
        // Messages that an armed fault concerns run apart from the others.
        let mut isolated = JoinSet::new();
        let halt = Arc::new(Notify::new());
        let mut check_requested = self.subscription.intake.check_requests();
        let intake = self.subscription.intake.open();
        let mut pause_check = interval(Duration::from_secs(1));
        let mut progress_tick = interval_at(Instant::now() + progress, progress);
        let mut breaker = self.breaker.watch();
        let (mut stands_by, mut standby) = (self.bus.stands_by(), Standby::new());
        let mut next = Instant::now();
        let end = loop {
            if pull.is_lost() {
                match Pull::begin(&self.bus, &self.publisher.stream(), &self.name()).await {
                    // Messages of the old connection are redelivered.
                    Ok(again) => (pull, prefetched) = (again, VecDeque::new()),
                    Err(error) => break Err(error.into()),
                }
            }
            if pull.is_idle() {
                let expires = match *stands_by.borrow_and_update() {
                    false => Some(self.settings.pull_expires),
                    true => standby.joins().then_some(Standby::JOINS_FOR),
                };
                if let Some(expires) = expires
                    && let Err(error) = pull.request(room.saturating_sub(prefetched.len()), expires).await
                {
                    break Err(error.into());
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break Ok(()),
                () = halt.notified() => break Err(Failure::database()),
                () = breaker_opens(&mut breaker) => break Ok(()),
                Some(_) = in_progress.join_next() => {}
                Some(_) = isolated.join_next() => {}
                () = either(pause_check.tick(), check_requested.changed()) => {
                    match control::is_paused(&self.pool, &self.name()).await {
                        Ok(true) => break Ok(()),
                        Ok(false) => {}
                        Err(error) => break Err(Failure::Other(error.to_string())),
                    }
                }
                _ = stands_by.changed() => {}
                () = standby.look_due(), if pull.is_idle() && *stands_by.borrow() => {
                    if let Err(failure) = standby.look(self).await {
                        break Err(failure);
                    }
                }
                _ = progress_tick.tick() => answer::send_progress(self, prefetched.iter()).await,
                received = pull.next() => match received {
                    Ok(received) => prefetched.extend(received),
                    Err(error) => break Err(error.into()),
                },
                () = sleep_until(next), if in_progress.len() < self.subscription.lanes && !prefetched.is_empty() => {
                    let chunk: Vec<Unacked> = prefetched.drain(..prefetched.len().min(self.settings.consumer_batch)).collect();
                    let wait = gather::after_batch(chunk.len(), self.settings.consumer_batch, MOST_GATHERING);
                    next = Instant::now() + wait;
                    let (alone, messages) = batch::isolate(self, chunk);
                    for message in alone {
                        isolated.spawn(self.clone().work_on(vec![message], progress, Arc::clone(&halt)));
                    }
                    if !messages.is_empty() {
                        in_progress.spawn(self.clone().work_on(messages, progress, Arc::clone(&halt)));
                    }
                }
            }
        };
        // Prefetched messages are returned at once instead of after the broker's ack wait.
        answer::nak(self, prefetched.iter()).await;
        drop(intake);
        // Read the request until all batches are finished: nats-server 2.9 loses a redelivery to a request without a reader until
        // the ack wait is over. What arrives meanwhile is returned for other replicas.
        while !in_progress.is_empty() || !isolated.is_empty() {
            tokio::select! {
                Some(_) = in_progress.join_next() => {}
                Some(_) = isolated.join_next() => {}
                received = pull.next_of_last_request() => answer::nak(self, received.iter()).await,
            }
        }
        answer::nak(self, pull.drain_buffered().iter()).await;
        end
    }

    async fn work_on(self: Arc<Self>, messages: Vec<Unacked>, progress: Duration, halt: Arc<Notify>) {
        if batch::process(&self, messages, progress).await.is_err() {
            halt.notify_one();
        }
    }

    /// Pulls as many events as the breaker has probes left, and processes them.
    async fn probe(self: &Arc<Self>, permits: u32, stop: &CancellationToken) -> Result<(), Failure> {
        let connects = self.bus.connects();
        let (consumer, progress) = self.find().await?;
        let intake = self.subscription.intake.open();
        if control::is_paused(&self.pool, &self.name()).await.map_err(|e| Failure::Other(e.to_string()))? {
            return Ok(());
        }
        let max_messages = usize::try_from(permits).unwrap_or(usize::MAX);
        let mut messages = consumer.fetch().max_messages(max_messages).messages().await.map_err(|e| chain(&e))?;
        self.works();
        let mut probes = Vec::new();
        let until = Instant::now() + PROBE_TIMEOUT;
        let fetched = loop {
            match timeout_at(until, messages.next()).await {
                Ok(Some(Ok(message))) => probes.push(Unacked::new(message, connects)),
                Ok(Some(Err(error))) => break Err(error.to_string()),
                Ok(None) => break Ok(()),
                // The client would wait for ever when the connection breaks between request and response.
                Err(_) => break Err("the broker does not answer".to_owned()),
            }
        };
        if let Err(error) = fetched {
            answer::nak(self, probes.iter()).await;
            return Err(Failure::Broker(error));
        }
        drop(intake);
        if probes.is_empty() {
            stop.run_until_cancelled(sleep(PROBE_POLL)).await;
        }
        // Each alone, concurrently: a failing event fails only its own probe.
        let alone = probes.into_iter().map(|probe| batch::process(self, vec![probe], progress));
        let processed: Result<(), _> = join_all(alone).await.into_iter().collect();
        processed.map_err(|_| Failure::database())
    }

    fn works(&self) {
        (self.report)(Ok(()));
        self.bus.isolation.is_over();
    }

    /// The consumer, and the interval of its progress acknowledgements: a third of its ack wait.
    async fn find(&self) -> Result<(PullConsumer, Duration), Failure> {
        let found = self.bus.jetstream.get_consumer_from_stream(self.name(), self.publisher.stream()).await;
        let consumer: PullConsumer = found.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(answer) if answer.error_code() != ErrorCode::CLUSTER_NOT_AVAILABLE => {
                Failure::Other(chain(&error))
            }
            _ => Failure::Broker(chain(&error)),
        })?;
        let progress = (consumer.cached_info().config.ack_wait / 3).max(Duration::from_millis(100));
        Ok((consumer, progress))
    }
}

/// Why a consumer pauses.
enum Failure {
    /// JetStream does not answer, or not at this server.
    Broker(String),
    Other(String),
}

impl Failure {
    fn database() -> Self {
        Failure::Other("the database is unavailable".to_owned())
    }
}

impl From<String> for Failure {
    fn from(of_the_broker: String) -> Self {
        Failure::Broker(of_the_broker)
    }
}

async fn either<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    tokio::select! {
        _ = one => {}
        _ = other => {}
    }
}

async fn breaker_opens(breaker: &mut watch::Receiver<State>) {
    // Fails only when the breaker is dropped, and the consumer holds it.
    drop(breaker.wait_for(|state| *state != State::Closed).await);
}
