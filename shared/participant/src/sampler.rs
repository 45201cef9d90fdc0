//! Gauges that are read from the database and the broker: by the one replica that holds the lease, shown by no other.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use messaging::{
    Subscription, consumer, housekeeping, lease,
    sample::{self, Reading, Sampled},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::Participant;

/// Gauges of one origin, and how they are read.
#[derive(Clone, Copy)]
pub struct Source {
    pub gauges: &'static [Sampled],
    pub read: fn(PgPool) -> BoxFuture<'static, Result<Vec<Reading>, sqlx::Error>>,
}

const BROKER: &[Sampled] = &[
    Sampled { name: "broker_stream_bytes", help: "Bytes in the service's stream", labels: &[] },
    Sampled { name: "broker_stream_max_bytes", help: "Bytes that fit into it", labels: &[] },
    Sampled { name: "broker_stream_messages", help: "Messages in the service's stream", labels: &[] },
    Sampled { name: "consumer_pending", help: "Events published and not delivered yet, by step", labels: &["step"] },
    Sampled { name: "consumer_ack_pending", help: "Events delivered and not acknowledged, by step", labels: &["step"] },
];

/// What was read last; nothing while another replica reads.
#[derive(Clone, Default)]
pub(crate) struct Sampler {
    sources: Arc<[Source]>,
    readings: Arc<Mutex<Vec<Reading>>>,
}

impl Sampler {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        Sampler { sources: sources.into(), readings: Arc::default() }
    }

    /// Reads every `metrics_every` until `stop`, as long as this replica holds the lease.
    pub(crate) async fn run(self, participant: Participant, subscriptions: Vec<Subscription>, stop: CancellationToken) {
        let every = participant.settings.messaging.metrics_every;
        housekeeping::every(every, &stop, || async {
            let readings = self.read(&participant, &subscriptions).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the gauges could not be read and are left out");
                Vec::new()
            });
            *self.readings.lock().unwrap_or_else(PoisonError::into_inner) = readings;
        })
        .await;
    }

    async fn read(
        &self,
        participant: &Participant,
        subscriptions: &[Subscription],
    ) -> Result<Vec<Reading>, sqlx::Error> {
        let pool = &participant.pools.work;
        let ttl = participant.settings.messaging.metrics_every * 2;
        if !lease::hold(&mut *pool.acquire().await?, "metrics", &participant.holder, ttl).await? {
            return Ok(Vec::new());
        }
        let steps: Vec<String> = subscriptions.iter().map(|s| s.step.name.to_owned()).collect();
        let mut readings = sample::read(pool, &steps).await?;
        for source in self.sources.iter() {
            readings.extend((source.read)(pool.clone()).await?);
        }
        readings.extend(broker(participant, subscriptions).await?);
        Ok(readings)
    }
}

/// What the broker says of the service's stream and consumers; nothing while it is away.
async fn broker(participant: &Participant, subscriptions: &[Subscription]) -> Result<Vec<Reading>, sqlx::Error> {
    let mut readings = Vec::new();
    let mut tell = |name: &str, step: Option<&str>, value: f64| {
        let labels = step.into_iter().map(str::to_owned).collect();
        readings.push(Reading { name: name.to_owned(), labels, value });
    };
    if let Some(stream) = participant.bus.stream_state().await {
        tell("broker_stream_bytes", None, stream.bytes as f64);
        tell("broker_stream_max_bytes", None, stream.max_bytes as f64);
        tell("broker_stream_messages", None, stream.messages as f64);
    }
    for subscription in subscriptions {
        let (mut pending, mut unacknowledged, mut known) = (0, 0, false);
        for publisher in subscription.event.publishers {
            let name = subscription.step.consumer();
            let state = consumer::state(&participant.pools.work, &participant.bus, &name, *publisher).await?;
            if let Ok(side) = state.broker {
                (pending, unacknowledged, known) = (pending + side.lag, unacknowledged + side.in_flight, true);
            }
        }
        if known {
            tell("consumer_pending", Some(subscription.step.name), pending as f64);
            tell("consumer_ack_pending", Some(subscription.step.name), unacknowledged as f64);
        }
    }
    Ok(readings)
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sampler")
    }
}

impl Collector for Sampler {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.sources.iter().flat_map(|source| source.gauges);
        for gauge in sample::SAMPLED.iter().chain(BROKER).chain(own) {
            let mut values = readings.iter().filter(|reading| reading.name == gauge.name).peekable();
            if values.peek().is_none() {
                continue;
            }
            if gauge.labels.is_empty() {
                let metric = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
                ConstGauge::new(values.next().map_or(0.0, |reading| reading.value)).encode(metric)?;
                continue;
            }
            let mut family = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
            for reading in values {
                let labels: Vec<(&str, &str)> =
                    gauge.labels.iter().copied().zip(reading.labels.iter().map(String::as_str)).collect();
                ConstGauge::new(reading.value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
