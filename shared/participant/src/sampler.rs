//! Gauges that are read from the database and the broker: read and shown only by the replica that holds the lease.

mod broker;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bootstrap::metrics::{Metrics, Scrape};
use futures_util::future::BoxFuture;
use messaging::{
    Subscription, lease, periodic,
    sample::{self, Reading, Sampled},
};
use prometheus_client::metrics::gauge::ConstGauge;
use saga::Step;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::Participant;

/// The lease's name.
const LEASE: &str = "metrics";

/// A group of gauges, and the function that reads them.
#[derive(Clone, Copy)]
pub struct Source {
    pub gauges: &'static [Sampled],
    pub read: fn(PgPool) -> BoxFuture<'static, Result<Vec<Reading>, sqlx::Error>>,
}

/// The gauges that every participant reads, besides those of its own sources.
pub fn sampled() -> impl Iterator<Item = &'static Sampled> {
    sample::SAMPLED.iter().chain(broker::SAMPLED)
}

/// The latest readings; none while another replica holds the lease.
#[derive(Clone)]
pub(crate) struct Sampler {
    sources: Arc<[Source]>,
    every: Duration,
    latest: Arc<Mutex<Option<Sample>>>,
}

/// The readings of one round, valid as long as the lease under which they were taken.
struct Sample {
    readings: Vec<Reading>,
    begun: Instant,
}

impl Sampler {
    pub(crate) fn new(sources: Vec<Source>, every: Duration) -> Self {
        Sampler { sources: sources.into(), every, latest: Arc::default() }
    }

    /// Shows the latest readings at each scrape.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let this = self.clone();
        metrics.on_scrape(move |scrape| this.show(scrape));
    }

    fn show(&self, scrape: &mut Scrape<'_>) -> fmt::Result {
        let latest = self.latest();
        // A replica that hangs must not show readings while another one holds the lease.
        let Some(sample) = latest.as_ref().filter(|sample| sample.begun.elapsed() < self.ttl()) else { return Ok(()) };
        let own = self.sources.iter().flat_map(|source| source.gauges);
        for gauge in sampled().chain(own) {
            let readings: Vec<_> = sample.readings.iter().filter(|reading| reading.name == gauge.name).collect();
            if !readings.is_empty() {
                write(gauge, &readings, scrape)?;
            }
        }
        Ok(())
    }

    /// Reads periodically until `stop`, while this replica holds the lease.
    pub(crate) async fn run(
        self,
        participant: Arc<Participant>,
        subscriptions: Vec<Subscription>,
        stop: CancellationToken,
    ) {
        periodic::every(self.every, &stop, || async {
            let begun = Instant::now();
            let round = tokio::time::timeout(self.ttl(), self.round(&participant, &subscriptions)).await;
            let readings = match round {
                Ok(Ok(readings)) => readings,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "gauges could not be read and are not shown");
                    None
                }
                Err(_) => {
                    tracing::warn!(limit = ?self.ttl(), "reading gauges exceeded the time limit; they are not shown");
                    None
                }
            };
            *self.latest() = readings.map(|readings| Sample { readings, begun });
        })
        .await;
        *self.latest() = None;
        if let Err(error) = release_lease(&participant).await {
            tracing::debug!(%error, "the lease of the gauges could not be released; it expires");
        }
    }

    /// The readings of this round; none when another replica holds the lease.
    async fn round(
        &self,
        participant: &Participant,
        subscriptions: &[Subscription],
    ) -> Result<Option<Vec<Reading>>, sqlx::Error> {
        let pool = &participant.pools.work;
        if !lease::hold(&mut *pool.acquire().await?, LEASE, &participant.holder, self.ttl()).await? {
            return Ok(None);
        }
        let steps: Vec<&Step> = subscriptions.iter().map(|s| s.step).collect();
        let mut readings = sample::read(pool, &steps).await?;
        for source in self.sources.iter() {
            readings.extend((source.read)(pool.clone()).await?);
        }
        readings.extend(broker::read(&participant.bus, subscriptions).await);
        Ok(Some(readings))
    }

    /// How long the lease lasts: one round may fail before another replica takes over.
    fn ttl(&self) -> Duration {
        self.every * 2
    }

    fn latest(&self) -> MutexGuard<'_, Option<Sample>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn release_lease(participant: &Participant) -> Result<(), sqlx::Error> {
    lease::release(&mut *participant.pools.work.acquire().await?, LEASE, &participant.holder).await
}

fn write(gauge: &Sampled, readings: &[&Reading], scrape: &mut Scrape<'_>) -> fmt::Result {
    if let ([], [reading]) = (gauge.labels, readings) {
        return scrape.one(gauge.name, gauge.help, ConstGauge::new(reading.value));
    }
    let labelled = readings.iter().map(|reading| {
        let labels = gauge.labels.iter().copied().zip(reading.labels.iter().map(String::as_str));
        (labels.collect::<Vec<_>>(), ConstGauge::new(reading.value))
    });
    scrape.family(gauge.name, gauge.help, labelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metric line of one gauge that was read this long ago, with a period of one second.
    fn shown(labels: &[&str], age: Duration) -> Option<String> {
        let name = sample::SAMPLED.iter().find(|gauge| gauge.labels.len() == labels.len())?.name.to_owned();
        let sampler = Sampler::new(Vec::new(), Duration::from_secs(1));
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let readings = vec![Reading { name, labels, value: 3.0 }];
        *sampler.latest() = Some(Sample { readings, begun: Instant::now().checked_sub(age)? });
        let metrics = Metrics::default();
        let others = metrics.encode().ok()?.lines().count();
        sampler.register(&metrics);
        let text = metrics.encode().ok()?;
        text.lines().skip(others - 1).find(|line| !line.starts_with('#')).map(str::to_owned)
    }

    #[test]
    fn a_reading_is_shown_while_its_lease_lasts() {
        assert_eq!(shown(&[], Duration::ZERO).as_deref(), Some("outbox_pending 3.0"));
        let labelled = shown(&["confirm_order"], Duration::ZERO);
        assert_eq!(labelled.as_deref(), Some("dead_letters_pending{step=\"confirm_order\"} 3.0"));
        assert_eq!(shown(&[], Duration::from_secs(2)), None);
    }
}
