//! Audits one after the other until the process stops. A failed audit is logged and repeated.

use std::time::{Duration, Instant};

use bootstrap::{CancellationToken, ReadyFlag};

use super::{board::Board, metrics::AuditMetrics};
use crate::audit::{Options, Stores, audit};

/// An audit reads all data; it may take at most one SHARE-th of the time, however large the suite is.
const SHARE: u32 = 10;

pub(crate) struct Rounds {
    pub(crate) stores: Stores,
    pub(crate) gateway_url: String,
    pub(crate) every: Duration,
    pub(crate) board: Board,
    /// Where the outcome shows beside the board, in a server.
    pub(crate) served: Option<Served>,
    pub(crate) stop: CancellationToken,
}

pub(crate) struct Served {
    pub(super) metrics: AuditMetrics,
    pub(super) ready: ReadyFlag,
}

impl Rounds {
    pub(crate) async fn run(self) {
        let options = Options { at_work: true, ..Options::default() };
        loop {
            let began = Instant::now();
            let audit = Box::pin(audit(&self.stores, &self.gateway_url, &options));
            let Some(outcome) = self.stop.run_until_cancelled(audit).await else { return };
            let took = began.elapsed();
            match outcome {
                Ok(report) => {
                    if let Some(Served { metrics, ready }) = &self.served {
                        metrics.audited(&report.invariants, took);
                        ready.ok();
                    }
                    self.board.audited(report, took);
                }
                Err(error) => {
                    let reason = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(reason, "the audit failed; it will be repeated");
                    self.board.failed(reason);
                    if let Some(Served { metrics, ready }) = &self.served {
                        metrics.failed();
                        // Shown without authentication, so it must not contain the servers' error texts.
                        ready.failing("the suite cannot be audited");
                    }
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
