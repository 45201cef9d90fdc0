//! A service's connection to the broker: it publishes to its own stream and consumes others.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, jetstream};
use saga::Service;
use tokio::sync::watch;

use crate::{
    Faults,
    acknowledged::{self, Fill, StreamView},
    isolation::Isolation,
};

/// How long a response of the broker may take; a later one was lost with its connection.
pub(crate) const BROKER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) service: Service,
    pub(crate) faults: Faults,
    pub(crate) isolation: Arc<Isolation>,
    /// Whether the relay of another replica of the service is active.
    stands_by: watch::Sender<bool>,
}

impl Bus {
    pub fn new(client: Client, service: Service) -> Self {
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(BROKER_RESPONSE_TIMEOUT)
            .ack_timeout(BROKER_RESPONSE_TIMEOUT)
            .build(client.clone());
        let (faults, isolation) = (Faults::none(), Arc::default());
        Bus { jetstream, client, service, faults, isolation, stands_by: watch::Sender::new(false) }
    }

    /// The faults that work on this bus can meet at its named fault points. Without them, and in a build without the feature
    /// `inject` of the crate `faults`, a fault point does nothing.
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Whether the connection is up now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// The number of connections so far; grows with each reconnect.
    pub(crate) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether the relay of another replica of the service is active; false without a relay.
    pub(crate) fn stands_by(&self) -> watch::Receiver<bool> {
        self.stands_by.subscribe()
    }

    pub(crate) fn stand_by(&self, another_is_active: bool) {
        self.stands_by
            .send_if_modified(|stands_by| std::mem::replace(stands_by, another_is_active) != another_is_active);
    }

    /// The fill of this service's own stream; `None` while the broker is unavailable.
    pub async fn fill(&self) -> Option<Fill> {
        self.fill_of(self.service).await
    }

    /// The fill of the stream of a service; `None` while the broker is unavailable.
    pub async fn fill_of(&self, service: Service) -> Option<Fill> {
        if !self.is_connected() {
            return None;
        }
        let stream = self.jetstream.get_stream(service.stream()).await.ok()?;
        Some(Fill::of(stream.cached_info()))
    }

    /// The maximum age of events in this service's own stream, zero for no limit; `None` while the broker is unavailable.
    pub async fn max_age(&self) -> Option<Duration> {
        let stream = self.jetstream.get_stream(self.service.stream()).await.ok()?;
        Some(stream.cached_info().config.max_age)
    }

    /// This service's own stream and the progress of these consumers; `None` while the broker is unavailable.
    pub async fn own_stream(&self, consumers: impl IntoIterator<Item = String>) -> Option<StreamView> {
        if !self.is_connected() {
            return None;
        }
        acknowledged::read(&self.jetstream, &self.service.stream(), consumers).await.ok().flatten()
    }

    pub(crate) async fn nudge(&self) {
        // After a lost nudge the active relay finds the rows at its next poll.
        let _ = self.client.publish(self.service.nudge_subject(), "".into()).await;
    }
}
