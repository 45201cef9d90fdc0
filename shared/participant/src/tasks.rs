//! The long-running parts of a participant.

use std::sync::Arc;

use bootstrap::{Startup, Task};
use futures_util::future::BoxFuture;
use messaging::{Consumer, Relay, StepError, Subscription, housekeeping, periodic};
use saga::Timeout;
use saga_store::timeout::Detector;
use tokio_util::sync::CancellationToken;
use webhook::Runner;

use crate::{
    Participant, changes, report_to,
    sampler::{Sampler, Source},
};

impl Participant {
    /// All tasks that run until the service stops. Registers the readiness checks, and the gauges of `sources`.
    pub fn tasks(
        self: &Arc<Self>,
        startup: &Startup,
        subscriptions: &[Subscription],
        mut sources: Vec<Source>,
    ) -> Vec<Task> {
        let stop = &startup.stop;
        if self.webhook.is_some() {
            let read = |pool| Box::pin(async move { webhook::read(&pool).await }) as BoxFuture<'static, _>;
            sources.push(Source { gauges: webhook::SAMPLED, read });
        }
        let sampler = Sampler::new(sources, self.settings.messaging.metrics_every);
        sampler.register(&startup.metrics);
        self.metrics.begin_at_zero(self.service, subscriptions.iter().map(|s| s.step), self.definition);
        let mut tasks: Vec<Task> = vec![
            ("relay", Box::pin(self.relay(startup).run(stop.clone()))),
            ("stall_watch", Box::pin(Arc::clone(self).republish_stalled(stop.clone()))),
            ("breaker_journal", Box::pin(self.write_breaker_changes(stop.clone()))),
            ("metrics", Box::pin(sampler.run(Arc::clone(self), subscriptions.to_vec(), stop.clone()))),
            ("housekeeping", Box::pin(self.housekeeping(stop.clone()))),
            ("dead_letter_replays", Box::pin(self.batches.clone().wait())),
            ("replicas", Box::pin(self.answer_replicas(startup, subscriptions))),
        ];
        if self.settings.timeouts.timeout_detector_enabled {
            tasks.push(("timeout_detector", (self.timeouts.run)(self, stop.clone())));
        }
        if let Some(endpoint) = self.webhook.clone() {
            let (holder, pool) = (self.holder.clone(), self.pools.work.clone());
            let runner = Runner::new(holder, pool, endpoint, &self.settings.webhook);
            tasks.push(("webhook", Box::pin(runner.run(stop.clone()))));
        }
        if self.settings.dead_letter_auto_replay {
            let watch = changes::replay_when_closed(self.breakers.changes(), self.replays(subscriptions), stop.clone());
            tasks.push(("dead_letter_auto_replay", Box::pin(watch)));
        }
        for subscription in subscriptions {
            for consumer in self.consumers(startup, subscription) {
                tasks.push((subscription.step.name, Box::pin(consumer.run(stop.clone()))));
            }
        }
        tasks
    }

    fn relay(&self, startup: &Startup) -> Relay {
        Relay {
            holder: self.holder.clone(),
            pool: self.pools.relay.clone(),
            settings: self.settings.messaging.clone(),
            open_events: saga_store::open_events,
            consumers: self
                .part
                .consuming()
                .filter(|(_, publishers)| publishers.contains(&self.service))
                .map(|(step, _)| step.consumer())
                .collect(),
            report: report_to(startup.readiness.register("relay")),
            ..Relay::of(&self.outbox)
        }
    }

    /// Ready once this replica's presence is stored.
    fn answer_replicas(
        self: &Arc<Self>,
        startup: &Startup,
        subscriptions: &[Subscription],
    ) -> impl Future<Output = ()> + use<> {
        let report = report_to(startup.readiness.register("replicas"));
        self.replicas.clone().run(Arc::clone(self), subscriptions.to_vec(), report, startup.stop.clone())
    }

    /// One consumer per publisher of the step's trigger.
    fn consumers(&self, startup: &Startup, subscription: &Subscription) -> Vec<Consumer> {
        let publishers = subscription.event.publishers;
        let consumer = |publisher: &saga::Service| Consumer {
            policy: self.policy(subscription.step),
            breaker: self.breakers.of(subscription.step),
            settings: self.settings.messaging.clone(),
            report: report_to(startup.readiness.register(match publishers {
                [_] => format!("consumer {}", subscription.step.name),
                _ => format!("consumer {} from {publisher}", subscription.step.name),
            })),
            ..Consumer::new(&self.outbox, subscription.clone(), *publisher)
        };
        publishers.iter().map(consumer).collect()
    }

    /// The timeout detector; every service runs one by default, and each saga is timed out by one of them.
    pub fn timeout_detector<T: Timeout>(&self) -> Detector<T> {
        Detector {
            outbox: self.outbox.clone(),
            definition: self.definition,
            step: self.part.timeout,
            event: |due| T::of(due.expired()),
            every: self.settings.timeouts.timeout_check_every,
            batch: i64::from(self.settings.timeouts.timeout_batch),
            auto_compensate: self.settings.timeouts.auto_compensate,
            metrics: self.metrics.clone(),
        }
    }

    /// Times out the sagas whose deadline has passed; returns how many.
    pub(crate) async fn check_timeouts(&self) -> Result<i64, StepError> {
        (self.timeouts.check)(self).await
    }

    async fn republish_stalled(self: Arc<Self>, stop: CancellationToken) {
        let stalled_after = self.definition.deadline / 2;
        // An inbox remembers at least as long; otherwise the service does not start.
        let remembered = self.settings.messaging.dead_letter_retention;
        periodic::every(self.settings.timeouts.timeout_check_every, &stop, || async {
            if let Err(error) = saga_store::stalled::republish(&self.outbox, stalled_after).await {
                tracing::warn!(%error, "republishing for stalled sagas failed and will be retried");
            }
            let owed = saga_store::stalled::republish_owed(&self.outbox, self.definition, stalled_after, remembered);
            if let Err(error) = owed.await {
                tracing::warn!(%error, "republishing for owed steps failed and will be retried");
            }
        })
        .await;
    }

    fn write_breaker_changes(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        changes::write(self.breakers.changes(), self.pools.work.clone(), self.holder.clone(), stop)
    }

    fn housekeeping(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let (pool, settings) = (self.pools.work.clone(), self.settings.messaging.clone());
        housekeeping::run(pool, self.holder.clone(), settings, self.metrics.clone(), stop)
    }
}
