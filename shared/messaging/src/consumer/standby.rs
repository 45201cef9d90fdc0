//! The consumer of a standby replica: one whose relay waits for the lease. Replicas that share all events halve each other's
//! batches, and pay for twice as many transactions. So the replica whose relay is active consumes, and the others join when it
//! does not keep up, does not ask, or returns events.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Consumer, Failure};

/// How often a standby replica looks whether it is needed, and half the time for which it joins.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Standby {
    next_look: Instant,
    needed: bool,
}

impl Standby {
    pub(super) const JOINS_FOR: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Standby { next_look: Instant::now(), needed: false }
    }

    /// Whether to request messages now; asked once for each request.
    pub(super) fn joins(&mut self) -> bool {
        std::mem::take(&mut self.needed)
    }

    /// Returns when it is time to look.
    pub(super) async fn look_due(&self) {
        sleep_until(self.next_look).await;
    }

    /// More than a batch waits; or no replica asks, perhaps because only this build has the step; or an event was returned, perhaps
    /// by a build that cannot read it.
    pub(super) async fn look(&mut self, consumer: &Consumer) -> Result<(), Failure> {
        let (found, _) = consumer.find().await?;
        let info = found.cached_info();
        let waits = info.num_pending > consumer.settings.consumer_batch as u64;
        self.needed = waits || info.num_waiting == 0 || info.num_redelivered > 0;
        self.next_look = Instant::now() + LOOK;
        Ok(())
    }
}
