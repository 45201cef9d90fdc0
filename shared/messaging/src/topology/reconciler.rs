//! The topology reconciler: creates a suite's streams and consumers, re-creates those that the broker has lost, and removes
//! acknowledged events from streams that fill up. One process of a suite runs it.

use std::{collections::HashSet, fmt, time::Duration};

use async_nats::{
    Client,
    connection::State,
    jetstream::{self, Context},
};
use saga::{Consumer, Service, Step};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use super::{ConsumerSettings, Ensured, StreamSettings, TopologyError, ensure_consumer, ensure_stream, refused};
use crate::{
    acknowledged::{self, StreamView},
    bus::BROKER_RESPONSE_TIMEOUT,
    consumer_list,
    error::chain,
    isolation::Isolation,
};

const RECONCILE_EVERY: Duration = Duration::from_secs(1);

/// The streams and consumers of a suite.
#[derive(Debug, Clone)]
pub struct Topology {
    services: Vec<Service>,
    consumers: Vec<Consumer>,
    pub stream: StreamSettings,
    pub consumer: ConsumerSettings,
}

/// Something that must exist on the broker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Object {
    Stream(Service),
    Consumer(Consumer),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Stream(service) => write!(f, "stream {}", service.stream()),
            Object::Consumer(c) => write!(f, "consumer {} of stream {}", c.step.consumer(), c.publisher.stream()),
        }
    }
}

impl Topology {
    /// A stream for each of `services`, and the consumers that `steps` need, with default settings.
    pub fn of(services: impl IntoIterator<Item = Service>, steps: impl IntoIterator<Item = &'static Step>) -> Self {
        Topology {
            services: services.into_iter().collect(),
            consumers: saga::consumers(steps),
            stream: StreamSettings::default(),
            consumer: ConsumerSettings::default(),
        }
    }

    /// All objects that must exist, streams before their consumers.
    pub fn objects(&self) -> Vec<Object> {
        let streams = self.services.iter().copied().map(Object::Stream);
        streams.chain(self.consumers.iter().copied().map(Object::Consumer)).collect()
    }

    /// Creates missing objects, updates different ones, and deletes consumers that a newer build has left behind: the services'
    /// durable consumers that belong to no step here and have no open pull requests. Returns the created and updated objects.
    /// Idempotent.
    pub async fn ensure(&self, client: &Client) -> Result<Vec<(Object, Ensured)>, TopologyError> {
        let js = jetstream::new(client.clone());
        let mut done = Vec::new();
        for object in self.objects() {
            let ensured = self.ensure_object(&js, object).await?;
            if ensured != Ensured::Unchanged {
                tracing::info!("{object}: {ensured:?}");
                done.push((object, ensured));
            }
        }
        self.delete_leftovers(&js).await?;
        Ok(done)
    }

    /// Re-creates lost streams and consumers, and returns them. Existing ones are not changed, whatever their settings, except
    /// for a consumer that is ahead of its stream, because the stream was restored in an older state: it would skip the next
    /// events and is re-created.
    pub async fn restore(&self, client: &Client) -> Result<Vec<Object>, TopologyError> {
        let (js, streams) = self.observe(client).await?;
        self.recreate(&js, &streams).await
    }

    /// Removes the oldest events that all these consumers have acknowledged from streams that are more than half full. Returns
    /// the number of removed events. Other readers of a stream may miss events.
    pub async fn trim(&self, client: &Client) -> Result<u64, TopologyError> {
        let (js, streams) = self.observe(client).await?;
        self.purge_acknowledged(&js, &streams).await
    }

    /// Restores and trims once a second, and when `reconnected` is notified, for ever. Logs each failure once, and its end. Leaves a
    /// server of a cluster that has lost the others.
    pub async fn run(&self, client: &Client, reconnected: &Notify) {
        let mut tick = interval(RECONCILE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_failure, isolation) = (None, Isolation::default());
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = reconnected.notified() => {}
            }
            let failure = match client.connection_state() {
                State::Connected => self.reconcile(client).await.err().map(|error| chain(&error)),
                _ => Some("the connection to NATS is lost".to_owned()),
            };
            match &failure {
                Some(_) => isolation.is_possible(client).await,
                None => isolation.is_over(),
            }
            match &failure {
                Some(error) if failure != last_failure => {
                    tracing::warn!("reconciling the broker's streams and consumers failed and is retried: {error}");
                }
                None if last_failure.is_some() => {
                    tracing::info!("the broker's streams and consumers are reconciled again");
                }
                _ => {}
            }
            last_failure = failure;
        }
    }

    async fn reconcile(&self, client: &Client) -> Result<(), TopologyError> {
        let (js, streams) = self.observe(client).await?;
        self.recreate(&js, &streams).await?;
        self.purge_acknowledged(&js, &streams).await.map(drop)
    }

    async fn ensure_object(&self, js: &Context, object: Object) -> Result<Ensured, TopologyError> {
        match object {
            Object::Stream(service) => ensure_stream(js, service, &self.stream).await,
            Object::Consumer(c) => match ensure_consumer(js, c.step, c.publisher, &self.consumer).await {
                Err(error) if error.is_without_store() => {
                    tracing::warn!("{}: the stream is deleted and re-created", chain(&error));
                    self.recreate_stream(js, c.publisher).await
                }
                done => done,
            },
        }
    }

    /// The service's relay republishes those lost events that are still needed.
    async fn recreate_stream(&self, js: &Context, service: Service) -> Result<Ensured, TopologyError> {
        let object = Object::Stream(service).to_string();
        js.delete_stream(service.stream()).await.map_err(refused("delete", &object))?;
        ensure_stream(js, service, &self.stream).await?;
        for consumer in self.consumers_of(service) {
            ensure_consumer(js, consumer.step, service, &self.consumer).await?;
        }
        Ok(Ensured::Created)
    }

    async fn delete_leftovers(&self, js: &Context) -> Result<(), TopologyError> {
        let known: HashSet<String> = self.consumers.iter().map(|c| c.step.consumer()).collect();
        let is_ours = |name: &str| self.services.iter().any(|service| name.starts_with(&format!("{service}-")));
        for service in &self.services {
            let (stream, object) = (service.stream(), Object::Stream(*service).to_string());
            let names = consumer_list::names(js, &stream).await.map_err(refused("list the consumers of", &object))?;
            let names = names.into_iter().filter(|name| is_ours(name) && !known.contains(name));
            let consumers = consumer_list::named(js, &stream, names).await;
            let consumers = consumers.map_err(refused("describe consumers of", &object))?.into_iter();
            for consumer in consumers.filter(|c| c.num_waiting == 0).map(|consumer| consumer.name) {
                let object = format!("consumer {consumer} of {object}");
                tracing::warn!(
                    "the {object} belongs to no step of this build and has no open pull requests: deleting it"
                );
                let deleted = js.delete_consumer_from_stream(&consumer, &stream).await;
                deleted.map_err(refused("delete", &object))?;
            }
        }
        Ok(())
    }

    async fn observe(&self, client: &Client) -> Result<(Context, Vec<ObservedStream>), TopologyError> {
        let mut js = jetstream::new(client.clone());
        js.set_timeout(BROKER_RESPONSE_TIMEOUT);
        let mut streams = Vec::with_capacity(self.services.len());
        for &service in &self.services {
            let consumers = self.consumers_of(service).map(|consumer| consumer.step.consumer());
            let view = acknowledged::read(&js, &service.stream(), consumers).await;
            let view = view.map_err(|source| TopologyError::Refused {
                action: "describe",
                object: Object::Stream(service).to_string(),
                source,
            })?;
            streams.push((service, view));
        }
        Ok((js, streams))
    }

    async fn recreate(&self, js: &Context, streams: &[ObservedStream]) -> Result<Vec<Object>, TopologyError> {
        let missing: Vec<Object> = streams.iter().flat_map(|stream| self.missing(stream)).collect();
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter().map(Object::to_string).collect();
            tracing::warn!(missing = names.join(", "), "the broker has lost streams or consumers: re-creating them");
        }
        for object in &missing {
            if let Object::Consumer(c) = object {
                // It exists if it was ahead of its stream.
                let _ = js.delete_consumer_from_stream(c.step.consumer(), c.publisher.stream()).await;
            }
            self.ensure_object(js, *object).await?;
        }
        Ok(missing)
    }

    fn missing(&self, (service, view): &ObservedStream) -> Vec<Object> {
        let stream = view.is_none().then_some(Object::Stream(*service));
        let present = |c: &Consumer| view.as_ref().is_some_and(|view| view.acknowledged(&c.step.consumer()).is_some());
        let consumers = self.consumers_of(*service).filter(|consumer| !present(consumer)).map(Object::Consumer);
        stream.into_iter().chain(consumers).collect()
    }

    async fn purge_acknowledged(&self, js: &Context, streams: &[ObservedStream]) -> Result<u64, TopologyError> {
        let mut removed = 0;
        for (service, view) in streams {
            let consumers = self.consumers_of(*service).map(|consumer| consumer.step.consumer());
            let Some(before) = view.as_ref().and_then(|view| view.removable(consumers)) else { continue };
            let (stream, object) = (service.stream(), Object::Stream(*service).to_string());
            let handle = js.get_stream_no_info(&stream).await.map_err(refused("find", &object))?;
            let purged = handle.purge().sequence(before).await.map_err(refused("trim", &object))?.purged;
            tracing::debug!(stream, purged, before, "removed what all consumers have acknowledged");
            removed += purged;
        }
        Ok(removed)
    }

    fn consumers_of(&self, service: Service) -> impl Iterator<Item = Consumer> {
        self.consumers.iter().copied().filter(move |consumer| consumer.publisher == service)
    }
}

/// A service and its stream; `None` if the stream does not exist.
type ObservedStream = (Service, Option<StreamView>);
