//! A message in hand, and how it is answered.

use std::ops::Deref;

use async_nats::jetstream::{AckKind, Message};

use crate::Bus;

/// A message that the broker has delivered and waits to be answered for.
#[derive(Debug)]
pub(super) struct Held {
    message: Message,
    /// Of the connection that it came by.
    connects: u64,
}

impl Held {
    pub(super) fn new(message: Message, connects: u64) -> Self {
        Held { message, connects }
    }

    /// Answers over the connection that it came by, or not at all. A broker that was away may have lost the message, and
    /// would take the answer for one to whatever has its place now. What it still has it delivers again, and the inbox
    /// knows it.
    pub(super) async fn answer(&self, bus: &Bus, kind: AckKind) {
        if bus.is_connected() && bus.connects() == self.connects {
            let _ = self.message.ack_with(kind).await;
        }
    }
}

impl Deref for Held {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}
