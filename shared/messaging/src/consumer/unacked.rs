//! A delivered message that is not acknowledged yet.

use std::{ops::Deref, sync::Arc};

use async_nats::{
    HeaderMap,
    jetstream::{AckKind, Message},
};

use crate::Bus;

/// A message that the broker has delivered and whose acknowledgement it awaits.
#[derive(Debug)]
pub(super) struct Unacked {
    message: Message,
    /// Those of the message, which a step reads without a copy.
    pub(super) headers: Arc<HeaderMap>,
    /// The number of the connection that delivered it.
    connects: u64,
}

impl Unacked {
    pub(super) fn new(mut message: Message, connects: u64) -> Self {
        let headers = Arc::new(message.message.headers.take().unwrap_or_default());
        Unacked { message, headers, connects }
    }

    /// Answers over the connection that delivered it, or not at all. After a restart the broker may have lost the message, and
    /// would apply the answer to another message with the same sequence. If it still has the message, it redelivers it, and
    /// the inbox recognises the event.
    pub(super) async fn answer(&self, bus: &Bus, kind: AckKind) {
        if bus.is_connected() && bus.connects() == self.connects {
            let _ = self.message.ack_with(kind).await;
        }
    }
}

impl Deref for Unacked {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}
