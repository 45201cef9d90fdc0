//! Whether a step's consumers in this process accept events, so that an operator's pause can be confirmed once none does.

use tokio::sync::watch;

/// The intake of one step's consumers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Intake {
    /// How many consumers accept events, or are about to check whether they are paused.
    open: watch::Sender<usize>,
    check: watch::Sender<()>,
}

/// Counts one consumer as accepting events until it is dropped.
#[derive(Debug)]
pub(super) struct Open(watch::Sender<usize>);

impl Intake {
    /// Call this before the consumer checks whether it is paused.
    pub(super) fn open(&self) -> Open {
        self.open.send_modify(|open| *open += 1);
        Open(self.open.clone())
    }

    /// Changes when the consumer has to check again.
    pub(super) fn check_requests(&self) -> watch::Receiver<()> {
        self.check.subscribe()
    }

    /// Waits until no consumer accepts events. Once the pause is committed, this stays so. Consumers finish the batches that they
    /// are processing.
    pub async fn closed(&self) {
        self.check.send_replace(());
        // Fails only when the sender is dropped, and `self` holds it.
        drop(self.open.subscribe().wait_for(|open| *open == 0).await);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
