//! Measures how long a step takes, and the latency from an event's transaction to its effect. It compares the clocks of the
//! publisher's database, the broker and this process; no behaviour depends on the result.

use std::time::Instant;

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{Consumer, unacked::Unacked};
use crate::{
    TraceContext,
    batch::Effect,
    envelope,
    metrics::{Hop, StepLabel, TraceLabel},
    subscription::Ran,
};

pub(super) struct Stopwatch {
    begun: Instant,
    delivered: OffsetDateTime,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Stopwatch { begun: Instant::now(), delivered: wall_clock() }
    }

    /// Observes the batch, and the latencies of each event that was applied now; duplicates are left out.
    pub(super) fn stop(&self, consumer: &Consumer, batch: &[Unacked], ran: &Ran) {
        let (metrics, step) = (&consumer.metrics, consumer.subscription.step.name);
        metrics.inbox_batch_size.get_or_create_owned(&StepLabel { step }).observe(batch.len() as f64);
        // One exemplar per batch is enough to find a trace.
        let exemplar = batch.iter().find_map(sampled_trace).map(TraceLabel::new);
        let duration = metrics.step_duration.get_or_create_owned(&StepLabel { step });
        duration.observe(self.begun.elapsed().as_secs_f64(), exemplar, None);
        let Ok(committed) = &ran.result else { return };
        let now = wall_clock();
        let hop = |hop| metrics.hop.get_or_create_owned(&Hop { step, hop });
        let (delivery, work, whole) =
            (hop("published_to_delivered"), hop("delivered_to_committed"), hop("committed_to_committed"));
        for (place, event_id) in &ran.read {
            let effect = committed.covered.get(event_id).filter(|effect| **effect != Effect::Duplicate);
            let Some(message) = effect.and_then(|_| batch.get(*place)) else { continue };
            if let Ok(info) = message.info() {
                delivery.observe(seconds(info.published, self.delivered));
            }
            work.observe(seconds(self.delivered, now));
            if let Some(written) = written_at(message) {
                whole.observe(seconds(written, now));
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement; no behaviour depends on it")]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Zero if the clocks disagree about the order.
fn seconds(from: OffsetDateTime, to: OffsetDateTime) -> f64 {
    (to - from).as_seconds_f64().max(0.0)
}

/// When the publisher's transaction wrote the event.
fn written_at(message: &Unacked) -> Option<OffsetDateTime> {
    let text = envelope::header(&message.headers, envelope::CE_TIME)?;
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

fn sampled_trace(message: &Unacked) -> Option<String> {
    let header = envelope::header(&message.headers, envelope::TRACEPARENT)?;
    let trace: TraceContext = header.parse().ok()?;
    trace.is_sampled().then(|| trace.trace_id())
}
