//! Periodic work.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

/// The timeout of one run: on a half-open connection it would wait for ever.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `work` now and then every `period`, until `stop`. A run that takes longer than a minute is dropped; the next one
/// begins at its time, or at once if that has passed.
pub async fn every<F: Future<Output = ()>>(period: Duration, stop: &CancellationToken, mut work: impl FnMut() -> F) {
    let mut tick = tokio::time::interval(period.max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => if timeout(WORK_TIMEOUT, work()).await.is_err() {
                tracing::warn!("periodic work timed out and will be retried");
            },
            () = stop.cancelled() => return,
        }
    }
}
