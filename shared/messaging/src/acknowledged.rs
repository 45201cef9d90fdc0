//! A stream and how far its consumers have acknowledged it. What all of them have had, nobody needs any more.

use std::collections::HashMap;

use async_nats::jetstream::{Context, ErrorCode, consumer, context::GetStreamErrorKind, stream};

use crate::consumer_list;

/// A stream with its consumers, as the broker describes them.
#[derive(Debug, Clone)]
pub struct StreamView {
    /// The stream's time of creation in nanoseconds: a re-created stream is another epoch.
    pub epoch: i64,
    pub fill: Fill,
    /// Through which sequence each consumer has acknowledged everything that is for it. One that is ahead of a stream that
    /// came back in an older state is left out.
    acknowledged: HashMap<String, u64>,
}

/// What a stream holds, and how much it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub bytes: u64,
    /// 0: without limit.
    pub max_bytes: u64,
    pub messages: u64,
    pub first_sequence: u64,
    pub last_sequence: u64,
}

/// Reads the stream; `None`: there is no such stream.
pub async fn read(js: &Context, name: &str) -> Result<Option<StreamView>, async_nats::Error> {
    let mut found = match js.get_stream(name).await {
        Ok(found) => found,
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                return Ok(None);
            }
            _ => return Err(error.into()),
        },
    };
    // In this order: what a consumer has had is compared with what was there before, and where it is with what is there
    // afterwards.
    let info = found.cached_info().clone();
    let consumers = consumer_list::of_stream(js, name).await?;
    let last = found.info().await?.state.last_sequence;
    Ok(Some(StreamView::of(&info, &consumers, last)))
}

impl StreamView {
    fn of(info: &stream::Info, consumers: &[consumer::Info], last_afterwards: u64) -> Self {
        let through = |consumer: &consumer::Info| match (consumer.num_pending, consumer.num_ack_pending) {
            // A filtered consumer's floor stays at the last message that was for it.
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

    /// Whether the consumer is there, and not ahead of the stream.
    pub fn has(&self, consumer: &str) -> bool {
        self.acknowledged.contains_key(consumer)
    }

    /// Through which sequence the consumer has acknowledged everything that is for it.
    pub fn acknowledged(&self, consumer: &str) -> Option<u64> {
        self.acknowledged.get(consumer).copied()
    }

    /// Whether the consumer has yet to acknowledge what this stream holds there.
    pub fn owes(&self, consumer: &str, stream_epoch: i64, sequence: i64) -> bool {
        let through = self.acknowledged(consumer).unwrap_or_default();
        stream_epoch == self.epoch && u64::try_from(sequence).is_ok_and(|sequence| sequence > through)
    }

    /// Before which sequence nothing has to be kept, for want of room and because all of these consumers have had it.
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

    /// Whether so little room is left (a tenth) that it is needed for what was begun before.
    pub fn is_scarce(&self) -> bool {
        self.max_bytes > 0 && self.bytes > self.max_bytes / 10 * 9
    }

    /// Half of the room is for what has been acknowledged, the whole of it for what has not. Little at a time, because the
    /// broker stores nothing meanwhile.
    fn removable(&self, acknowledged: u64) -> Option<u64> {
        let surplus = self.bytes.checked_sub(self.max_bytes / 2).filter(|_| self.max_bytes > 0)?;
        if surplus < self.max_bytes / 64 {
            return None;
        }
        // Events are much of the same size.
        let count = u128::from(self.messages) * u128::from(surplus) / u128::from(self.bytes.max(1));
        let before = self.first_sequence + u64::try_from(count).unwrap_or(u64::MAX);
        // The last message stays: the broker tells by it where the stream ends, also after a restart.
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
    fn what_was_acknowledged_leaves_a_stream_that_is_more_than_half_full_and_nothing_else_does() {
        assert_eq!(fill(1, 60, 120_000).removable(60), Some(11), "ten of sixty are too many");
        assert_eq!(fill(101, 160, 120_000).removable(160), Some(111));
        assert_eq!(fill(1, 60, 120_000).removable(4), Some(5), "the fifth is still needed");
        assert_eq!(fill(1, 60, 120_000).removable(0), None);
        assert_eq!(fill(1, 51, 120_000).removable(51), None, "too little to be worth it");
        assert_eq!(fill(1, 50, 120_000).removable(50), None);
        assert_eq!(fill(1, 60, 0).removable(60), None, "without limit");
    }

    #[test]
    fn the_last_message_stays() {
        let huge = Fill { bytes: 110_000, max_bytes: 120_000, messages: 1, first_sequence: 7, last_sequence: 7 };
        assert_eq!(huge.removable(7), None);
    }

    /// Each second 100 orders, of two events of 1,200 bytes each in the fullest stream (tests/tests/it/limits.rs measures
    /// them); consumers are ten seconds behind.
    #[test]
    fn a_day_of_orders_at_100_a_second_fits_into_the_default_settings() {
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
