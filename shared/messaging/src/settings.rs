//! The settings of messaging, with defaults.

use std::time::Duration;

use clap::{Args, builder::RangedU64ValueParser};

#[derive(Debug, Clone, Args)]
pub struct MessagingArgs {
    /// How long the relay's lease lasts without renewal; a frozen relay is replaced after this time. The same in all
    /// replicas.
    #[arg(long, env = "RELAY_LEASE", default_value = "1500ms", value_parser = humantime::parse_duration)]
    pub relay_lease: Duration,
    /// How many events the relay publishes before it awaits their acknowledgements.
    #[arg(long, env = "RELAY_BATCH", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub relay_batch: u16,
    /// How often the relay polls for events without a notification; shorter than its lease.
    #[arg(long, env = "RELAY_POLL", default_value = "500ms", value_parser = humantime::parse_duration)]
    pub relay_poll: Duration,
    /// How often the relay compares its last acknowledgement with the stream.
    #[arg(long, env = "RECONCILE_EVERY", default_value = "30s", value_parser = humantime::parse_duration)]
    pub reconcile_every: Duration,
    /// How long an event stays parked before the relay tries it again, and twice as long after each further refusal, at most a day.
    /// Without it, parked events wait for an operator.
    #[arg(long, env = "OUTBOX_PARKED_REPLAY_AFTER", value_parser = at_least_a_second)]
    pub outbox_parked_replay_after: Option<Duration>,
    /// The most events that a consumer processes in one transaction.
    #[arg(long, env = "CONSUMER_BATCH", default_value_t = 200, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub consumer_batch: usize,
    /// How long a consumer's request for events stays open. Use 1s where the broker has several servers and services have
    /// accounts: there a server delivers to the request of a replica that has ended, as long as the request is open.
    #[arg(long, env = "PULL_EXPIRES", default_value = "10s", value_parser = at_least_a_second)]
    pub pull_expires: Duration,
    /// How long an event of a version that this build cannot read is returned, so that a replica of another build can process
    /// it; after that it becomes a dead letter.
    #[arg(long, env = "UNKNOWN_VERSION_WAIT", default_value = "5m", value_parser = humantime::parse_duration)]
    pub unknown_version_wait: Duration,
    /// How often old partitions are dropped and new ones created ahead.
    #[arg(long, env = "HOUSEKEEPING_EVERY", default_value = "60s", value_parser = humantime::parse_duration)]
    pub housekeeping_every: Duration,
    /// How often gauges are read from the database, by one replica of each service.
    #[arg(long, env = "METRICS_EVERY", default_value = "5s", value_parser = humantime::parse_duration)]
    pub metrics_every: Duration,
    /// How long inbox rows are kept: at least the streams' maximum age plus the dead letters' retention.
    #[arg(long, env = "INBOX_RETENTION", default_value = "10d", value_parser = humantime::parse_duration)]
    pub inbox_retention: Duration,
    /// How long published events are kept for publishing again and inspection.
    #[arg(long, env = "OUTBOX_RETENTION", default_value = "24h", value_parser = humantime::parse_duration)]
    pub outbox_retention: Duration,
    /// How long events are kept for the history of their order or product: as long as sagas.
    #[arg(long, env = "EVENT_RETENTION", default_value = "30d", value_parser = humantime::parse_duration)]
    pub event_retention: Duration,
    /// How long dead letters are kept.
    #[arg(long, env = "DEAD_LETTER_RETENTION", default_value = "7d", value_parser = humantime::parse_duration)]
    pub dead_letter_retention: Duration,
}

impl Default for MessagingArgs {
    fn default() -> Self {
        MessagingArgs {
            relay_lease: Duration::from_millis(1500),
            relay_batch: 1000,
            relay_poll: Duration::from_millis(500),
            reconcile_every: Duration::from_secs(30),
            outbox_parked_replay_after: None,
            consumer_batch: 200,
            pull_expires: Duration::from_secs(10),
            unknown_version_wait: Duration::from_secs(5 * 60),
            housekeeping_every: Duration::from_secs(60),
            metrics_every: Duration::from_secs(5),
            inbox_retention: Duration::from_secs(10 * 24 * 3600),
            outbox_retention: Duration::from_secs(24 * 3600),
            event_retention: Duration::from_secs(30 * 24 * 3600),
            dead_letter_retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// For a pull request: not zero, which the broker takes for a request that never ends and has no heartbeats; and so rare that it
/// costs nothing.
fn at_least_a_second(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration >= Duration::from_secs(1) { Ok(duration) } else { Err("it must be at least 1s".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn parked_events_wait_for_an_operator_unless_it_is_set() {
        let parsed = |arguments: &[&str]| {
            let command = MessagingArgs::augment_args(clap::Command::new("service"));
            let matches = command.try_get_matches_from([&["service"], arguments].concat()).ok()?;
            Some(MessagingArgs::from_arg_matches(&matches).expect("valid").outbox_parked_replay_after)
        };
        assert_eq!(parsed(&[]), Some(None));
        let half_an_hour = Some(Duration::from_secs(1800));
        assert_eq!(parsed(&["--outbox-parked-replay-after", "30m"]), Some(half_an_hour));
        assert_eq!(parsed(&["--outbox-parked-replay-after", "0s"]), None);
    }

    #[test]
    fn pull_requests_of_less_than_a_second_are_refused() {
        assert_eq!(at_least_a_second("1s"), Ok(Duration::from_secs(1)));
        for text in ["0s", "999ms", "-1s", "soon"] {
            assert!(at_least_a_second(text).is_err(), "{text}");
        }
        let command = MessagingArgs::augment_args(clap::Command::new("service"));
        assert!(command.try_get_matches_from(["service", "--pull-expires", "0s"]).is_err());
    }
}
