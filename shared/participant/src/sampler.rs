//! Gauges that are read from the database and the broker: by the one replica that holds the lease, shown by no other.

mod broker;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use messaging::{
    Subscription, housekeeping, lease,
    sample::{self, Reading, Sampled},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use saga::Step;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::Participant;

/// The lease's name.
const LEASE: &str = "metrics";

/// Gauges of one origin, and how they are read.
#[derive(Clone, Copy)]
pub struct Source {
    pub gauges: &'static [Sampled],
    pub read: fn(PgPool) -> BoxFuture<'static, Result<Vec<Reading>, sqlx::Error>>,
}

/// The gauges that every participant reads, besides those of its own sources.
pub fn sampled() -> impl Iterator<Item = &'static Sampled> {
    sample::SAMPLED.iter().chain(broker::SAMPLED)
}

/// What was read last; nothing while another replica reads.
#[derive(Clone)]
pub(crate) struct Sampler {
    sources: Arc<[Source]>,
    every: Duration,
    latest: Arc<Mutex<Option<Sample>>>,
}

/// The readings of one round, for as long as the lease lasts under which they were taken.
struct Sample {
    readings: Vec<Reading>,
    begun: Instant,
}

impl Sampler {
    pub(crate) fn new(sources: Vec<Source>, every: Duration) -> Self {
        Sampler { sources: sources.into(), every, latest: Arc::default() }
    }

    /// Reads again and again until `stop`, as long as this replica holds the lease.
    pub(crate) async fn run(self, participant: Participant, subscriptions: Vec<Subscription>, stop: CancellationToken) {
        housekeeping::every(self.every, &stop, || async {
            let begun = Instant::now();
            let round = tokio::time::timeout(self.ttl(), self.round(&participant, &subscriptions)).await;
            let readings = match round {
                Ok(Ok(readings)) => readings,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "gauges could not be read and are not shown");
                    None
                }
                Err(_) => {
                    tracing::warn!(limit = ?self.ttl(), "gauges took too long to read and are not shown");
                    None
                }
            };
            *self.latest() = readings.map(|readings| Sample { readings, begun });
        })
        .await;
        *self.latest() = None;
        if let Err(error) = give_back(&participant).await {
            tracing::debug!(%error, "the lease of the gauges was not given back and will expire");
        }
    }

    /// What this replica is to show; none when another holds the lease.
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

async fn give_back(participant: &Participant) -> Result<(), sqlx::Error> {
    lease::release(&mut *participant.pools.work.acquire().await?, LEASE, &participant.holder).await
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sampler")
    }
}

impl Collector for Sampler {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let latest = self.latest();
        // A replica that hangs must not show what another one reads by now.
        let Some(sample) = latest.as_ref().filter(|sample| sample.begun.elapsed() < self.ttl()) else { return Ok(()) };
        let own = self.sources.iter().flat_map(|source| source.gauges);
        for gauge in sampled().chain(own) {
            let readings: Vec<_> = sample.readings.iter().filter(|reading| reading.name == gauge.name).collect();
            if !readings.is_empty() {
                encode(gauge, &readings, &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn encode(gauge: &Sampled, readings: &[&Reading], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
    if let ([], [reading]) = (gauge.labels, readings) {
        return ConstGauge::new(reading.value).encode(metric);
    }
    for reading in readings {
        let labels: Vec<(&str, &str)> =
            gauge.labels.iter().copied().zip(reading.labels.iter().map(String::as_str)).collect();
        ConstGauge::new(reading.value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode as to_text, registry::Registry};

    use super::*;

    /// What is shown of one gauge that was read this long ago, when gauges are read every second.
    fn shown(labels: &[&str], age: Duration) -> Option<String> {
        let name = sample::SAMPLED.iter().find(|gauge| gauge.labels.len() == labels.len())?.name.to_owned();
        let sampler = Sampler::new(Vec::new(), Duration::from_secs(1));
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let readings = vec![Reading { name, labels, value: 3.0 }];
        *sampler.latest() = Some(Sample { readings, begun: Instant::now().checked_sub(age)? });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(sampler));
        let mut text = String::new();
        to_text(&mut text, &registry).ok()?;
        text.lines().find(|line| !line.starts_with('#')).map(str::to_owned)
    }

    #[test]
    fn a_reading_is_shown_as_long_as_the_lease_lasts_under_which_it_was_taken() {
        assert_eq!(shown(&[], Duration::ZERO).as_deref(), Some("outbox_pending 3.0"));
        let labelled = shown(&["confirm_order"], Duration::ZERO);
        assert_eq!(labelled.as_deref(), Some("dead_letters_pending{step=\"confirm_order\"} 3.0"));
        assert_eq!(shown(&[], Duration::from_secs(2)), None);
    }
}
