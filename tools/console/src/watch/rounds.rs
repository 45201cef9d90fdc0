//! Audits one after the other until the process stops. A failed audit is logged and repeated.

use std::time::{Duration, Instant};

use bootstrap::{CancellationToken, ReadyFlag};

use super::{board::Board, metrics::AuditMetrics};
use crate::audit::{Options, Stores, audit};

/// An audit reads all data; it may take at most one SHARE-th of the time, however large the suite is.
const SHARE: u32 = 10;

pub(super) struct Rounds {
    pub(super) stores: Stores,
    pub(super) gateway_url: String,
    pub(super) every: Duration,
    pub(super) metrics: AuditMetrics,
    pub(super) board: Board,
    pub(super) ready: ReadyFlag,
    pub(super) stop: CancellationToken,
}

impl Rounds {
    pub(super) async fn run(self) {
        let options = Options { at_work: true, ..Options::default() };
        loop {
            let began = Instant::now();
            let audit = Box::pin(audit(&self.stores, &self.gateway_url, &options));
            let Some(outcome) = self.stop.run_until_cancelled(audit).await else { return };
            let took = began.elapsed();
            match outcome {
                Ok(report) => {
                    self.metrics.audited(&report.invariants, took);
                    self.board.audited(report, took);
                    self.ready.ok();
                }
                Err(error) => {
                    self.metrics.failed();
                    let reason = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(reason, "the audit failed; it will be repeated");
                    self.board.failed(reason);
                    // Shown without authentication, so it must not contain the servers' error texts.
                    self.ready.failing("the suite cannot be audited");
                }
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(pause(self.every, took))).await.is_none() {
                return;
            }
        }
    }
}

fn pause(every: Duration, took: Duration) -> Duration {
    every.saturating_sub(took).max(took.saturating_mul(SHARE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audits_are_periodic_unless_they_exceed_their_share() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(10_000), ms(200)), ms(9_800));
        assert_eq!(pause(ms(10_000), ms(3_000)), ms(27_000));
        assert_eq!(pause(ms(10), ms(200)), ms(1_800));
    }
}
