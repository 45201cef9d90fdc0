//! Replays of dead letters in this participant, and the task that begins one when a step's breaker closes.

use messaging::{
    Subscription,
    dead_letter::{Replays, auto_replay},
};
use resilience::{Change, State};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::Participant;

impl Participant {
    /// What replays of dead letters run on.
    pub fn replays(&self, subscriptions: &[Subscription]) -> Replays {
        Replays {
            pool: self.pools.work.clone(),
            subscriptions: subscriptions.into(),
            batches: self.batches.clone(),
            metrics: self.metrics.clone(),
            hooks: self.faults.clone(),
        }
    }
}

/// Whenever the probes of a half-open breaker have succeeded, replays what its step had given up on meanwhile.
pub(crate) async fn replay_when_closed(replays: Replays, mut changes: Receiver<Change>, stop: CancellationToken) {
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = stop.cancelled() => return,
        };
        match change {
            Ok(Change { step, from: State::HalfOpen, to: State::Closed, .. }) => {
                if let Err(error) = auto_replay(&replays, step).await {
                    tracing::warn!(step, %error, "the step's dead letters wait for an operator");
                }
            }
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes of breakers were missed"),
            Err(RecvError::Closed) => return,
        }
    }
}
