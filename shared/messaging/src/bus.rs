//! The broker as one service sees it: its own stream to publish to, others' streams to consume.

use std::time::Duration;

use async_nats::{Client, jetstream};
use saga::Service;

use crate::{
    Hooks,
    acknowledged::{self, Fill, StreamView},
};

/// How long the broker may take for an answer: one that takes longer was lost with its connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How many receipts may be waited for, and still be on their way to somebody who has given up: more than the largest batch,
/// because the client holds back what is beyond, and nobody reads receipts before the whole batch is sent.
const RECEIPTS: usize = 4 * u16::MAX as usize;

#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) service: Service,
    pub(crate) hooks: Hooks,
}

impl Bus {
    pub fn new(client: Client, service: Service) -> Self {
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(ANSWER_LIMIT)
            .ack_timeout(ANSWER_LIMIT)
            .max_ack_inflight(RECEIPTS)
            .build(client.clone());
        Bus { jetstream, client, service, hooks: Hooks::none() }
    }

    /// The same with hooks, which everything on this bus passes at its named points: for faults on purpose. Without any,
    /// nothing happens there, and in a build without the feature `inject` of the crate `faults` nothing can.
    pub fn with_hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Whether the connection is up just now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// How often the connection was made; grows with every reconnect.
    pub(crate) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// How full this service's own stream is; none while the broker is away.
    pub async fn fill(&self) -> Option<Fill> {
        self.fill_of(self.service).await
    }

    /// How full the stream of a service is; none while the broker is away.
    pub async fn fill_of(&self, service: Service) -> Option<Fill> {
        if !self.is_connected() {
            return None;
        }
        let stream = self.jetstream.get_stream(service.stream()).await.ok()?;
        Some(Fill::of(stream.cached_info()))
    }

    /// For how long this service's own stream keeps events at most, zero: without limit; none while the broker is away.
    pub async fn max_age(&self) -> Option<Duration> {
        let stream = self.jetstream.get_stream(self.service.stream()).await.ok()?;
        Some(stream.cached_info().config.max_age)
    }

    /// This service's own stream and how far its consumers are; none while the broker is away.
    pub async fn own_stream(&self) -> Option<StreamView> {
        if !self.is_connected() {
            return None;
        }
        acknowledged::read(&self.jetstream, &self.service.stream()).await.ok().flatten()
    }

    pub(crate) async fn nudge(&self) {
        // Lost nudges cost a poll of the active relay, nothing more.
        let _ = self.client.publish(self.service.nudge_subject(), "".into()).await;
    }
}
