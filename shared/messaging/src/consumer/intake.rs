//! Whether a step's consumers in this process take events just now: for who has paused them, and wants to know when that
//! holds.

use tokio::sync::watch;

/// The intake of one step's consumers. Clones share it.
#[derive(Debug, Clone)]
pub struct Intake {
    /// How many consumers take events, or are about to look whether they may.
    open: watch::Sender<usize>,
    look: watch::Sender<()>,
}

/// A consumer that takes events, until it is dropped.
#[derive(Debug)]
pub(super) struct Open(watch::Sender<usize>);

impl Intake {
    pub(crate) fn new() -> Self {
        Intake { open: watch::Sender::new(0), look: watch::Sender::new(()) }
    }

    /// To be called before the consumer looks whether it is paused.
    pub(super) fn open(&self) -> Open {
        self.open.send_modify(|open| *open += 1);
        Open(self.open.clone())
    }

    /// Changes when the consumer has to look again.
    pub(super) fn looks(&self) -> watch::Receiver<()> {
        self.look.subscribe()
    }

    /// Waits until no consumer takes events, which is for good once it is written that they are paused. What they have in
    /// hand then they finish.
    pub async fn closed(&self) {
        self.look.send_replace(());
        // An error would say that the sender is gone, and we hold it.
        drop(self.open.subscribe().wait_for(|open| *open == 0).await);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
