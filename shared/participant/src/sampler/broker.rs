//! Gauges of a service's stream and consumers, read from the broker; none while it cannot be reached.

use messaging::{
    Bus, Subscription,
    consumer::broker_side,
    sample::{Reading, Sampled},
};

pub(super) const SAMPLED: &[Sampled] = &[
    Sampled::new("broker_stream_bytes", "Size of the service's stream", &[]),
    Sampled::new("broker_stream_max_bytes", "Maximal size of the service's stream", &[]),
    Sampled::new("broker_stream_messages", "Messages in the service's stream", &[]),
    Sampled::new("consumer_pending", "Events that are published and not delivered yet, by step", &["step"]),
    Sampled::new("consumer_ack_pending", "Events that are delivered and not acknowledged yet, by step", &["step"]),
];

pub(super) async fn read(bus: &Bus, subscriptions: &[Subscription]) -> Vec<Reading> {
    let mut readings = Vec::new();
    if let Some(stream) = bus.fill().await {
        let values = [stream.bytes, stream.max_bytes, stream.messages];
        readings.extend(SAMPLED.iter().zip(values).map(|(gauge, value)| reading(gauge.name, None, value)));
    }
    for subscription in subscriptions {
        if let Some((pending, unacknowledged)) = of_step(bus, subscription).await {
            let step = Some(subscription.step.name);
            readings.push(reading("consumer_pending", step, pending));
            readings.push(reading("consumer_ack_pending", step, unacknowledged));
        }
    }
    readings
}

/// The sums over the step's consumers: it has one on each stream that carries its trigger.
async fn of_step(bus: &Bus, subscription: &Subscription) -> Option<(u64, u64)> {
    let (mut pending, mut unacknowledged) = (0, 0);
    for publisher in subscription.event.publishers {
        let side = broker_side(bus, &subscription.step.consumer(), *publisher).await.ok()?;
        pending += side.lag;
        unacknowledged += side.in_flight as u64;
    }
    Some((pending, unacknowledged))
}

fn reading(name: &str, step: Option<&str>, value: u64) -> Reading {
    Reading { name: name.to_owned(), labels: step.into_iter().map(str::to_owned).collect(), value: value as f64 }
}
