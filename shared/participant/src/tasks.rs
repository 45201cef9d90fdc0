//! The long-running parts of a participant.

use bootstrap::{Startup, Task};
use messaging::{Consumer, Relay, Subscription, housekeeping};
use saga::Timeout;
use saga_store::timeout::Detector;
use tokio_util::sync::CancellationToken;

use crate::{
    Participant, journals,
    replays::replay_when_closed,
    report_to,
    sampler::{Sampler, Source},
};

impl Participant {
    /// Everything that runs until the service stops. Registers what readiness depends on, and the gauges of `sources`.
    pub fn tasks(&self, startup: &Startup, subscriptions: &[Subscription], sources: Vec<Source>) -> Vec<Task> {
        let stop = &startup.stop;
        let sampler = Sampler::new(sources, self.settings.messaging.metrics_every);
        startup.metrics.register(|registry| registry.register_collector(Box::new(sampler.clone())));
        self.metrics.begin_at_zero(self.service, subscriptions.iter().map(|s| s.step), self.definition);
        let mut tasks: Vec<Task> = vec![
            ("relay", Box::pin(self.relay(startup).run(stop.clone()))),
            ("timeout_detector", (self.timeouts)(self, stop.clone())),
            ("stall_watch", Box::pin(self.clone().watch_for_stalls(stop.clone()))),
            ("breaker_journal", Box::pin(self.breaker_journal(stop.clone()))),
            ("metrics", Box::pin(sampler.run(self.clone(), subscriptions.to_vec(), stop.clone()))),
            ("housekeeping", Box::pin(self.housekeeping(stop.clone()))),
            ("dead_letter_replays", Box::pin(self.batches.clone().wait())),
            ("replicas", Box::pin(self.answer_replicas(startup, subscriptions))),
        ];
        if self.settings.dead_letter_auto_replay {
            let watch = replay_when_closed(self.replays(subscriptions), self.breakers.changes(), stop.clone());
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

    /// Ready once the others can know of this replica.
    fn answer_replicas(&self, startup: &Startup, subscriptions: &[Subscription]) -> impl Future<Output = ()> + use<> {
        let report = report_to(startup.readiness.register("replicas"));
        self.replicas.clone().run(self.clone(), subscriptions.to_vec(), report, startup.stop.clone())
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

    /// The detector of timed-out sagas; every service has one, and each saga is found by one of them.
    pub fn timeout_detector<T: Timeout>(&self) -> Detector<T> {
        Detector {
            outbox: self.outbox.clone(),
            definition: self.definition,
            step: self.part.timeout,
            event: |due| T::of(due.expired()),
            every: self.settings.timeout_check_every,
            batch: i64::from(self.settings.timeout_batch),
        }
    }

    async fn watch_for_stalls(self, stop: CancellationToken) {
        let patience = self.definition.deadline / 2;
        housekeeping::every(self.settings.timeout_check_every, &stop, || async {
            if let Err(error) = saga_store::stalled::republish(&self.outbox, patience).await {
                tracing::warn!(%error, "stalled sagas could not be looked for and will be again");
            }
        })
        .await;
    }

    fn breaker_journal(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        journals::write_breaker_changes(self.breakers.changes(), self.pools.work.clone(), self.holder.clone(), stop)
    }

    fn housekeeping(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let (pool, settings) = (self.pools.work.clone(), self.settings.messaging.clone());
        housekeeping::run(pool, self.holder.clone(), settings, self.metrics.clone(), stop)
    }
}
