//! What events are published to. JetStream is the first target and the relay's own; another one has its own position, and reads
//! events with [`published_after`](crate::outbox::published_after) when the relay has published them.

use uuid::Uuid;

pub use crate::outbox::PendingRow;

/// A receiver of committed events.
pub trait Target {
    /// What it says about an event that it has accepted.
    type Receipt;
    /// Why it does not accept an event now, though it may later.
    type Obstacle;

    /// Offers events in this order. Of one aggregate, none is offered before the one before it is accepted. An event that the answer
    /// does not mention was not offered.
    fn publish(
        &mut self,
        events: &[PendingRow],
    ) -> impl Future<Output = Published<Self::Receipt, Self::Obstacle>> + Send;
}

/// A target's answer to several events.
#[derive(Debug)]
pub struct Published<R, O> {
    /// Of the accepted ones.
    pub receipts: Vec<R>,
    /// Of the others, as far as they were offered.
    pub stops: Vec<Stop<O>>,
}

/// Why an event was not accepted.
#[derive(Debug)]
pub enum Stop<O> {
    /// This event is refused, and always will be.
    Refused {
        event_id: Uuid,
        error: String,
    },
    NotNow {
        event_id: Uuid,
        obstacle: O,
    },
}
