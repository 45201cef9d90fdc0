//! The broker as one service sees it: its own stream to publish to, others' streams to consume.

use std::time::Duration;

use async_nats::{Client, jetstream};
use saga::Service;

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
}

/// How full a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    pub bytes: u64,
    /// 0: without limit.
    pub max_bytes: u64,
    pub messages: u64,
}

impl Bus {
    pub fn new(client: Client, service: Service) -> Self {
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(ANSWER_LIMIT)
            .ack_timeout(ANSWER_LIMIT)
            .max_ack_inflight(RECEIPTS)
            .build(client.clone());
        Bus { jetstream, client, service }
    }

    /// Whether the connection is up just now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// How often the connection was made; grows with every reconnect.
    pub(crate) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What the broker says of this service's own stream; none while it is away.
    pub async fn stream_state(&self) -> Option<StreamState> {
        if !self.is_connected() {
            return None;
        }
        let stream = self.jetstream.get_stream(self.service.stream()).await.ok()?;
        let info = stream.cached_info();
        let max_bytes = u64::try_from(info.config.max_bytes).unwrap_or(0);
        Some(StreamState { bytes: info.state.bytes, max_bytes, messages: info.state.messages })
    }

    pub(crate) async fn nudge(&self) {
        // Lost nudges cost a poll of the active relay, nothing more.
        let _ = self.client.publish(self.service.nudge_subject(), "".into()).await;
    }
}
