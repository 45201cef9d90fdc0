//! The broker as one service sees it: its own stream to publish to, others' streams to consume.

use async_nats::{Client, jetstream};
use saga::Service;

#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) service: Service,
}

impl Bus {
    pub fn new(client: Client, service: Service) -> Self {
        Bus { jetstream: jetstream::new(client.clone()), client, service }
    }

    /// Whether the connection is up just now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// How often the connection was made; grows with every reconnect.
    pub(crate) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) async fn nudge(&self) {
        // Lost nudges cost a poll of the active relay, nothing more.
        let _ = self.client.publish(self.service.nudge_subject(), "".into()).await;
    }
}
