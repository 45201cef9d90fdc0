//! A stream and how far its consumers have acknowledged it. Events that all of them have acknowledged can be removed.

use std::collections::HashMap;

use async_nats::jetstream::{Context, consumer, stream};

use crate::{consumer_list, topology::find_stream};

/// A stream with some of its consumers, as the broker describes them.
#[derive(Debug, Clone)]
pub struct StreamView {
    /// The stream's creation time in nanoseconds: a re-created stream has another epoch.
    pub epoch: i64,
    pub fill: Fill,
    /// The sequence through which each consumer has acknowledged all its events. A consumer that is ahead of its stream, because
    /// the stream was restored in an older state, is left out.
    acknowledged: HashMap<String, u64>,
}

/// The size of a stream and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub bytes: u64,
    /// 0 means no limit.
    pub max_bytes: u64,
    pub messages: u64,
    pub first_sequence: u64,
    pub last_sequence: u64,
}

/// Reads the stream and these consumers; `None` if it does not exist.
pub(crate) async fn read(
    js: &Context,
    name: &str,
    consumers: impl IntoIterator<Item = String>,
) -> Result<Option<StreamView>, async_nats::Error> {
    let Some(mut found) = find_stream(js, name).await? else { return Ok(None) };
    // The order matters: acknowledgements are compared with the state before the consumers were read, and positions with the
    // state after it.
    let info = found.cached_info().clone();
    let consumers = consumer_list::named(js, name, consumers).await?;
    let last = found.info().await?.state.last_sequence;
    Ok(Some(StreamView::of(&info, &consumers, last)))
}

impl StreamView {
    fn of(info: &stream::Info, consumers: &[consumer::Info], last_afterwards: u64) -> Self {
        let through = |consumer: &consumer::Info| match (consumer.num_pending, consumer.num_ack_pending) {
            // The floor of a filtered consumer stays at the last message that matches its filter.
            (0, 0) => consumer.ack_floor.stream_sequence.max(info.state.last_sequence),
            _ => consumer.ack_floor.stream_sequence,
        };
        let sound = consumers.iter().filter(|consumer| consumer.delivered.stream_sequence <= last_afterwards);
        StreamView {
            epoch: i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX),
            fill: Fill::of(info),
            acknowledged: sound.map(|consumer| (consumer.name.clone(), through(consumer))).collect(),
        }
    }

    /// The sequence through which the consumer has acknowledged all its events; `None` if it does not exist, is ahead, or was not
    /// asked for.
    pub fn acknowledged(&self, consumer: &str) -> Option<u64> {
        self.acknowledged.get(consumer).copied()
    }

    /// Whether the consumer has not acknowledged the event at this sequence of this stream yet.
    pub fn owes(&self, consumer: &str, stream_epoch: i64, sequence: i64) -> bool {
        let through = self.acknowledged(consumer).unwrap_or_default();
        stream_epoch == self.epoch && u64::try_from(sequence).is_ok_and(|sequence| sequence > through)
    }

    /// The sequence before which events are to be removed: room is needed, and all of these consumers have acknowledged them.
    pub fn removable(&self, consumers: impl IntoIterator<Item = String>) -> Option<u64> {
        let all = consumers.into_iter().map(|consumer| self.acknowledged(&consumer)).collect::<Option<Vec<_>>>()?;
        self.fill.removable(all.into_iter().min()?)
    }
}

impl Fill {
    pub(crate) fn of(info: &stream::Info) -> Self {
        let stream::State { bytes, messages, first_sequence, last_sequence, .. } = info.state;
        let max_bytes = u64::try_from(info.config.max_bytes).unwrap_or(0);
        Fill { bytes, max_bytes, messages, first_sequence, last_sequence }
    }

    /// Whether less than a tenth of the room is left, which is reserved for sagas that have started.
    pub fn is_scarce(&self) -> bool {
        self.max_bytes > 0 && self.bytes > self.max_bytes / 10 * 9
    }

    /// Acknowledged events may fill half of the stream; unacknowledged ones all of it. Removes a little at a time, because the
    /// broker stores no events meanwhile.
    fn removable(&self, acknowledged: u64) -> Option<u64> {
        let surplus = self.bytes.checked_sub(self.max_bytes / 2).filter(|_| self.max_bytes > 0)?;
        if surplus < self.max_bytes / 64 {
            return None;
        }
        // Assumes that events have about the same size.
        let count = u128::from(self.messages) * u128::from(surplus) / u128::from(self.bytes.max(1));
        let before = self.first_sequence + u64::try_from(count).unwrap_or(u64::MAX);
        // Keep the last message: after a restart the broker knows the end of the stream by it.
        let before = before.min(acknowledged + 1).min(self.last_sequence);
        (before > self.first_sequence).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of messages of 1,200 bytes each.
    fn fill(first_sequence: u64, last_sequence: u64, max_bytes: u64) -> Fill {
        let messages = last_sequence + 1 - first_sequence;
        Fill { bytes: messages * 1_200, max_bytes, messages, first_sequence, last_sequence }
    }

    #[test]
    fn only_acknowledged_events_leave_a_stream_over_half_full() {
        assert_eq!(fill(1, 60, 120_000).removable(60), Some(11), "the oldest ten of sixty exceed the half");
        assert_eq!(fill(101, 160, 120_000).removable(160), Some(111));
        assert_eq!(fill(1, 60, 120_000).removable(4), Some(5), "the fifth is not acknowledged");
        assert_eq!(fill(1, 60, 120_000).removable(0), None);
        assert_eq!(fill(1, 51, 120_000).removable(51), None, "below the minimum to remove");
        assert_eq!(fill(1, 50, 120_000).removable(50), None);
        assert_eq!(fill(1, 60, 0).removable(60), None, "without limit");
    }

    #[test]
    fn the_last_message_stays() {
        let huge = Fill { bytes: 110_000, max_bytes: 120_000, messages: 1, first_sequence: 7, last_sequence: 7 };
        assert_eq!(huge.removable(7), None);
    }

    /// 100 orders per second, with two events of 1,200 bytes each in the fullest stream (measured by tests/tests/it/limits.rs);
    /// consumers lag by ten seconds.
    #[test]
    fn a_day_at_100_orders_per_second_fits_the_defaults() {
        let max_bytes = crate::topology::StreamSettings::default().max_bytes.unsigned_abs();
        let (mut first, mut last, mut fullest) = (1, 0, 0);
        for _ in 0..24 * 3600 {
            last += 200;
            let stream = fill(first, last, max_bytes);
            fullest = fullest.max(stream.bytes);
            first = stream.removable(last.saturating_sub(2_000)).unwrap_or(first);
        }
        assert_eq!(last, 2 * 8_640_000);
        assert!(fullest * 100 < max_bytes * 52, "{fullest} of {max_bytes} bytes");
    }

    #[test]
    fn the_last_tenth_of_a_stream_is_scarce() {
        assert!(!fill(1, 90, 120_000).is_scarce());
        assert!(fill(1, 91, 120_000).is_scarce());
        assert!(!fill(1, 91, 0).is_scarce(), "without limit");
    }
}
