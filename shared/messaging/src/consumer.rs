//! The consumer of one step: pulls what is there, hands it to the step as one batch, and
//! acknowledges what is committed. Grows its batches with the load; splits a batch that fails until
//! the bad event stands alone; pauses, and counts nothing, while the database or the broker is away.
//! While the step's circuit breaker is open it pulls nothing; half-open it takes as many events as there are probes.

mod batch;
mod control;
mod held;
mod intake;
mod measure;
mod pull;
mod unread;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_nats::jetstream::consumer::PullConsumer;
use futures_util::{StreamExt, future::join_all};
use resilience::{Breaker, Breakers, Overrides, Policy, State};
use saga::Service;
use sqlx::PgPool;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{held::Held, pull::Pull};
use crate::{Metrics, Outbox, Report, Subscription, bus::Bus, error::chain, settings::MessagingArgs};

pub use control::{BrokerSide, ConsumerState, broker_side, pause, state};
pub use intake::Intake;

/// For how long a consumer that has taken a few events lets others gather: where they come one after the other, fewer and
/// larger transactions cost less. Who comes alone is taken at once.
const PACE: Duration = Duration::from_millis(15);
/// How often a paused consumer looks whether it may go on.
const PAUSED_POLL: Duration = Duration::from_millis(250);
/// How often a half-open breaker's consumer looks for something to probe with.
const PROBE_POLL: Duration = Duration::from_millis(250);
/// How long the answer to a request for probes may take.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// A step's consumer on one stream: a step whose trigger has several publishers has one for each.
#[derive(Clone)]
pub struct Consumer {
    pub subscription: Subscription,
    pub publisher: Service,
    pub bus: Bus,
    pub pool: PgPool,
    pub settings: MessagingArgs,
    pub metrics: Metrics,
    /// What applies to the step in this deployment.
    pub policy: Policy,
    /// The step's breaker, which all its consumers in this process share.
    pub breaker: Breaker,
    pub report: Report,
}

/// Why a pull ended.
enum PullEnd {
    Stopped,
    Paused,
    Broken(String),
}

impl Consumer {
    /// A consumer of what `publisher` publishes, with the step's own policy and usual settings.
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

    /// Consumes until `stop`; what is in hand then is finished first.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut failures: u32 = 0;
        while !stop.is_cancelled() {
            if this.wait_until_allowed(&stop).await {
                failures = match this.consume(&stop).await {
                    PullEnd::Stopped | PullEnd::Paused => 0,
                    PullEnd::Broken(error) => {
                        (this.report)(Err(&error));
                        tracing::warn!(consumer = this.name(), error, "the consumer pauses");
                        failures + 1
                    }
                };
            }
            if failures > 0 {
                let limit = Duration::from_millis(50 << failures.min(5)).min(Duration::from_secs(1));
                sleep_or_stop(limit.mul_f64(rand::random_range(0.5..=1.0)), &stop).await;
            }
        }
    }

    pub fn name(&self) -> String {
        self.subscription.step.consumer()
    }

    /// Waits while an operator has paused the consumer, or the database is away. False: look again.
    async fn wait_until_allowed(&self, stop: &CancellationToken) -> bool {
        match control::is_paused(&self.pool, &self.name()).await {
            Ok(false) => return true,
            Ok(true) => (self.report)(Ok(())),
            Err(error) => (self.report)(Err(&format!("the database is away: {error}"))),
        }
        sleep_or_stop(PAUSED_POLL, stop).await;
        false
    }

    /// As much as the breaker admits: everything, a few probes, or nothing until it is time to probe.
    async fn consume(self: &Arc<Self>, stop: &CancellationToken) -> PullEnd {
        let places = tokio::select! {
            biased;
            () = stop.cancelled() => return PullEnd::Stopped,
            // Somebody may have paused the consumer meanwhile.
            () = tokio::time::sleep(PAUSED_POLL) => return PullEnd::Paused,
            places = self.breaker.closed_or_probing() => places,
        };
        let ended = match places {
            u32::MAX => self.pull(stop).await,
            places => self.probe(places, stop).await,
        };
        ended.unwrap_or_else(PullEnd::Broken)
    }

    /// Pulls until there is a reason to stop.
    async fn pull(self: &Arc<Self>, stop: &CancellationToken) -> Result<PullEnd, String> {
        let (_, progress) = self.find().await?;
        let mut pull = Pull::begin(&self.bus, &self.publisher.stream(), &self.name()).await?;
        (self.report)(Ok(()));
        // What has come and waits for its turn: two batches at most, with what is still to come of them.
        let (room, mut ahead) = (self.settings.consumer_batch * 2, VecDeque::new());
        let mut in_hand = tokio::task::JoinSet::new();
        // What a fault concerns is held up by nobody and holds up nobody.
        let mut apart = tokio::task::JoinSet::new();
        let halt = Arc::new(Notify::new());
        let mut asked_to_look = self.subscription.intake.looks();
        let intake = self.subscription.intake.open();
        let mut look = tokio::time::interval(Duration::from_secs(1));
        let mut work_goes_on = tokio::time::interval_at(Instant::now() + progress, progress);
        let mut breaker = self.breaker.watch();
        let mut next = Instant::now();
        let end = loop {
            if pull.is_lost() {
                match Pull::begin(&self.bus, &self.publisher.stream(), &self.name()).await {
                    // What came by the old connection is delivered again.
                    Ok(again) => (pull, ahead) = (again, VecDeque::new()),
                    Err(error) => break PullEnd::Broken(error),
                }
            }
            if let Err(error) = pull.ask(room.saturating_sub(ahead.len())).await {
                break PullEnd::Broken(error);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break PullEnd::Stopped,
                () = halt.notified() => break PullEnd::Broken("the database is away".to_owned()),
                () = opens(&mut breaker) => break PullEnd::Paused,
                Some(_) = in_hand.join_next() => {}
                Some(_) = apart.join_next() => {}
                () = either(look.tick(), asked_to_look.changed()) => match control::is_paused(&self.pool, &self.name()).await {
                    Ok(true) => break PullEnd::Paused,
                    Ok(false) => {}
                    Err(error) => break PullEnd::Broken(error.to_string()),
                },
                _ = work_goes_on.tick() => batch::keep(self, ahead.iter()).await,
                come = pull.next() => match come {
                    Ok(come) => ahead.extend(come),
                    Err(error) => break PullEnd::Broken(error),
                },
                () = sleep_until(next), if in_hand.len() < self.subscription.lanes && !ahead.is_empty() => {
                    let chunk: Vec<Held> = ahead.drain(..ahead.len().min(self.settings.consumer_batch)).collect();
                    // A quarter of a batch is large enough.
                    if chunk.len() * 4 < self.settings.consumer_batch {
                        next = Instant::now() + PACE;
                    }
                    let (alone, messages) = batch::isolate(self, chunk);
                    for message in alone {
                        apart.spawn(self.clone().work_on(vec![message], progress, Arc::clone(&halt)));
                    }
                    if !messages.is_empty() {
                        in_hand.spawn(self.clone().work_on(messages, progress, Arc::clone(&halt)));
                    }
                }
            }
        };
        // What was only fetched ahead goes back at once, instead of after the broker's ack wait.
        batch::give_back(self, ahead.iter()).await;
        drop(intake);
        // Until all are answered: what is to be delivered again to a request that nobody listens to any more, nats-server
        // 2.9 forgets until the ack wait is over. Others wait for what comes meanwhile.
        while !in_hand.is_empty() || !apart.is_empty() {
            tokio::select! {
                Some(_) = in_hand.join_next() => {}
                Some(_) = apart.join_next() => {}
                come = pull.next_of_the_last() => batch::give_back(self, come.iter()).await,
            }
        }
        batch::give_back(self, pull.rest().iter()).await;
        Ok(end)
    }

    async fn work_on(self: Arc<Self>, messages: Vec<Held>, progress: Duration, halt: Arc<Notify>) {
        if batch::process(&self, messages, progress).await.is_err() {
            halt.notify_one();
        }
    }

    /// Takes as many events as there are probes left, and works on them.
    async fn probe(self: &Arc<Self>, places: u32, stop: &CancellationToken) -> Result<PullEnd, String> {
        let connects = self.bus.connects();
        let (consumer, progress) = self.find().await?;
        let intake = self.subscription.intake.open();
        if control::is_paused(&self.pool, &self.name()).await.map_err(|e| e.to_string())? {
            return Ok(PullEnd::Paused);
        }
        let most = usize::try_from(places).unwrap_or(usize::MAX);
        let mut messages = consumer.fetch().max_messages(most).messages().await.map_err(|e| chain(&e))?;
        (self.report)(Ok(()));
        let mut probes = Vec::new();
        let until = tokio::time::Instant::now() + PROBE_LIMIT;
        let fetched = loop {
            match tokio::time::timeout_at(until, messages.next()).await {
                Ok(Some(Ok(message))) => probes.push(Held::new(message, connects)),
                Ok(Some(Err(error))) => break Err(error.to_string()),
                Ok(None) => break Ok(()),
                // The client itself would wait for ever when the connection breaks between request and answer.
                Err(_) => break Err("the broker does not answer".to_owned()),
            }
        };
        if let Err(error) = fetched {
            batch::give_back(self, probes.iter()).await;
            return Err(error);
        }
        drop(intake);
        if probes.is_empty() {
            sleep_or_stop(PROBE_POLL, stop).await;
        }
        // Each alone and all at once: a bad event fails its own probe only.
        let alone = probes.into_iter().map(|probe| batch::process(self, vec![probe], progress));
        match join_all(alone).await.into_iter().collect::<Result<(), _>>() {
            Ok(()) => Ok(PullEnd::Paused),
            Err(batch::Outage) => Err("the database is away".to_owned()),
        }
    }

    /// The consumer, and how often the broker wants to hear that work goes on: a third of its ack wait.
    async fn find(&self) -> Result<(PullConsumer, Duration), String> {
        let stream = self.publisher.stream();
        let consumer: PullConsumer =
            self.bus.jetstream.get_consumer_from_stream(self.name(), stream).await.map_err(|e| chain(&e))?;
        let progress = (consumer.cached_info().config.ack_wait / 3).max(Duration::from_millis(100));
        Ok((consumer, progress))
    }
}

async fn either<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    tokio::select! {
        _ = one => {}
        _ = other => {}
    }
}

async fn opens(breaker: &mut watch::Receiver<State>) {
    // An error would say that the breaker is gone, and we hold one.
    drop(breaker.wait_for(|state| *state != State::Closed).await);
}

async fn sleep_or_stop(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}
