//! Tells the relay that there is something to publish: in process right after a commit, and from
//! replicas that are not the active relay by a nudge over core NATS. Losing either costs a poll.

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Wake {
    committed: Notify,
}

impl Wake {
    pub(crate) fn committed(&self) {
        self.committed.notify_one();
    }

    pub(crate) async fn wait(&self) {
        self.committed.notified().await;
    }
}
