//! Reactions to changes of breakers: each change is logged and stored, and a step's dead letters are replayed when its breaker
//! closes.

use messaging::{
    breaker_change,
    dead_letter::{Replays, auto_replay},
};
use resilience::{Change, State};
use sqlx::PgPool;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Logs and stores every change of every breaker.
pub(crate) async fn write(changes: Receiver<Change>, pool: PgPool, replica: String, stop: CancellationToken) {
    let (pool, replica) = (&pool, &replica);
    let write = |change: Change| async move {
        let Change { step, from, to, why } = &change;
        tracing::warn!(step, %from, %to, why, "the step's circuit breaker has changed");
        if let Err(error) = breaker_change::write(pool, replica, &change).await {
            tracing::warn!(step, %error, "the breaker's change could not be stored");
        }
    };
    for_each_change(changes, stop, write).await;
}

/// Replays a step's dead letters whenever the probes of its half-open breaker have succeeded.
pub(crate) async fn replay_when_closed(changes: Receiver<Change>, replays: Replays, stop: CancellationToken) {
    let replays = &replays;
    let replay = |change| async move {
        let Change { step, from: State::HalfOpen, to: State::Closed, .. } = change else { return };
        if let Err(error) = auto_replay(replays, step).await {
            tracing::warn!(step, %error, "automatic replay of dead letters failed; operator action required");
        }
    };
    for_each_change(changes, stop, replay).await;
}

/// Handles the changes one after the other, until `stop`.
async fn for_each_change<F: Future<Output = ()>>(
    mut changes: Receiver<Change>,
    stop: CancellationToken,
    mut handle: impl FnMut(Change) -> F,
) {
    while let Some(change) = stop.run_until_cancelled(changes.recv()).await {
        match change {
            Ok(change) => handle(change).await,
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes of breakers were missed"),
            Err(RecvError::Closed) => return,
        }
    }
}
