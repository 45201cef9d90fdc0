//! The twenty-one planted bugs: each is a patch of the same name in this crate's folder, with its provocation here.

use std::{future::Future, pin::Pin, time::Duration};

use crate::{
    experiment::Experiment,
    oracle::{BREAKERS, GOOD_ORDERS},
    provoke::{broker, consumer, database, gateway, relay, saga, stock},
};

/// A classic mistake, and how to provoke its damage.
pub struct Bug {
    /// Also the name of its patch, and the value of PLANTED.
    pub name: &'static str,
    /// The guarantee that it breaks, by its number in docs/guarantees.md.
    pub breaks: &'static str,
    /// The oracles that must detect the damage; others may detect it, too.
    pub noticed_by: &'static [&'static str],
    /// The nemeses that provoke it in chaos.
    pub shown_by: &'static [&'static str],
    /// How long a run of chaos with these nemeses takes, without what settles afterwards.
    pub length: Duration,
    /// Why no nemesis provokes it, if none does.
    pub not_shown: &'static str,
    /// Settings of the suite that let it show soon.
    pub settings: &'static [(&'static str, &'static str)],
    pub replicas: usize,
    pub provoke: Provocation,
}

/// Provokes the mistake; what is detected meanwhile is added to the experiment.
pub type Provocation = for<'s> fn(&'s mut Experiment) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

/// Enough for two rounds of nemeses.
const LENGTH: Duration = Duration::from_secs(55);

pub fn named(name: &str) -> Option<&'static Bug> {
    ALL.iter().find(|bug| bug.name == name)
}

/// Boxes the future of a provocation.
macro_rules! provoked_by {
    ($provoke:path) => {
        |experiment| Box::pin($provoke(experiment))
    };
}

impl Bug {
    /// Without settings, with one replica of each service.
    const fn new(
        name: &'static str,
        breaks: &'static str,
        noticed_by: &'static [&'static str],
        provoke: Provocation,
    ) -> Self {
        Bug {
            name,
            breaks,
            noticed_by,
            shown_by: &[],
            length: LENGTH,
            not_shown: "",
            settings: &[],
            replicas: 1,
            provoke,
        }
    }

    const fn shown_by(self, shown_by: &'static [&'static str]) -> Self {
        Bug { shown_by, ..self }
    }

    const fn times_as_long(self, times: u32) -> Self {
        Bug { length: LENGTH.saturating_mul(times), ..self }
    }

    const fn not_shown(self, not_shown: &'static str) -> Self {
        Bug { not_shown, ..self }
    }

    const fn settings(self, settings: &'static [(&'static str, &'static str)]) -> Self {
        Bug { settings, ..self }
    }

    const fn replicas(self, replicas: usize) -> Self {
        Bug { replicas, ..self }
    }
}

/// One bug per row: its name, the guarantee, the oracles, the provocation; then the nemeses, or why there are none.
pub const ALL: &[Bug] = &[
    Bug::new("ack_before_commit", "G1", &["acknowledged_was_had"], provoked_by!(consumer::crash_before_commit))
        .shown_by(&["terminate_backend", "kill_service"]),
    Bug::new("no_inbox", "G3", &["steps_taken_once"], provoked_by!(consumer::publish_in_triplicate))
        .shown_by(&["duplicate_events", "old_events"]),
    Bug::new("claim_before_work", "G1", &["claims_took_effect"], provoked_by!(consumer::crash_before_commit))
        .shown_by(&["kill_service", "terminate_backend"]),
    Bug::new("inbox_by_sequence", "G3", &[GOOD_ORDERS], provoked_by!(broker::begin_the_sequences_again))
        .shown_by(&["wipe_nats"])
        .settings(&[("SAGA_DEADLINE", "20s")]),
    Bug::new("move_before_publish", "G2", &["published_in_stream"], provoked_by!(relay::crash_before_publishing))
        .shown_by(&["kill_nats", "nats_reset"]),
    Bug::new("cursor_relay", "G1", &["outbox_empty", GOOD_ORDERS], provoked_by!(relay::commit_out_of_order))
        .shown_by(&["postgres_latency", "hog_locks"]),
    Bug::new("unconditional_timeout", "G1", &["journal_legal"], provoked_by!(saga::succeed_after_the_deadline))
        .shown_by(&["gateway_slow"])
        .settings(&[("SAGA_DEADLINE", "2s"), ("TIMEOUT_CHECK_EVERY", "100ms"), ("GATEWAY_SLOW_ANSWER", "2200ms")]),
    Bug::new("read_then_write_stock", "G4", &["stock_conserved"], provoked_by!(stock::sell_the_last_units_at_once))
        .shown_by(&["burst"])
        .replicas(2),
    Bug::new("no_tombstone", "G5", &["nothing_held_on_cancelled"], provoked_by!(saga::cancel_before_the_step))
        // Whether a cancellation overtakes its order depends on whom they strike.
        .shown_by(&["freeze_service", "hog_locks", "nats_latency"])
        .times_as_long(2),
    Bug::new("breaker_counts_refusals", "G9", &[BREAKERS], provoked_by!(gateway::decline_everything))
        .not_shown("too few cards are declined in a row to open a breaker")
        .settings(&[("RESILIENCE", "process_payment.open_for=2s")]),
    Bug::new("broker_dedup_only", "G3", &["steps_taken_once"], provoked_by!(consumer::lose_acknowledgements))
        .shown_by(&["nats_acks_lost", "old_events"]),
    Bug::new("no_reconciler", "G7", &[GOOD_ORDERS], provoked_by!(broker::empty_it_twice))
        .not_shown(
            "a saga's last event is published again at half its deadline, and no nemesis empties the broker \
            twice for one",
        )
        .settings(&[("SAGA_DEADLINE", "24s")]),
    Bug::new(
        "compensation_without_receipt",
        "G6",
        &["nothing_held_on_cancelled"],
        provoked_by!(saga::cancel_while_a_participant_is_away),
    )
    .shown_by(&["freeze_service", "kill_service"]),
    Bug::new(
        "no_void_for_tombstones",
        "G4",
        &["gateway_charges", "gateway_totals"],
        provoked_by!(gateway::forget_charges),
    )
    .not_shown("no nemesis sets the database back, so payment forgets no charge"),
    Bug::new(
        "attempts_burnt_while_unpublished",
        "G10",
        &["no_saga_stuck"],
        provoked_by!(saga::cancel_while_the_relay_is_paused),
    )
    .not_shown("late confirmations end a FAILED saga, and the judge looks when everything is healed")
    .settings(&[("COMPENSATION_DEADLINE", "100ms"), ("COMPENSATION_CHECK_EVERY", "100ms")]),
    Bug::new("unknown_version_buried", "G12", &["dead_letters"], provoked_by!(consumer::publish_for_a_newer_build))
        .not_shown("no newer build takes the events that unknown_version forges: they become dead letters in any case"),
    Bug::new("retention_before_consumption", "G1", &[GOOD_ORDERS], provoked_by!(broker::fill_most_of_a_stream))
        .not_shown("no nemesis keeps all replicas of a consumer away until what has stalled is published again")
        .settings(&[("SAGA_DEADLINE", "36s"), ("STREAM_MAX_BYTES", "100000")]),
    Bug::new("refusal_counted_against_processor", "G9", &[BREAKERS], provoked_by!(gateway::reject_charges_for_good))
        .not_shown("no client of chaos has a charge that the card processor rejects for good")
        .settings(&[("SAGA_DEADLINE", "20s"), ("RESILIENCE", "process_payment.open_for=2s")]),
    Bug::new("no_barrier", "G2", &["stream_only_committed"], provoked_by!(database::lose_a_visible_commit))
        .not_shown("the database of chaos has no standby")
        // A relay that renews its lease waits for the standby before it can publish.
        .settings(&[("RELAY_LEASE", "10m"), ("RECONCILE_EVERY", "10m")]),
    Bug::new("coordinator_in_memory", "G1", &[GOOD_ORDERS], provoked_by!(saga::kill_the_coordinator)).not_shown(
        "one order of chaos in ten is orchestrated, and lasts milliseconds: only by chance does a replica of order die \
        while it drives one, or a client hang up just before that",
    ),
    Bug::new(
        "command_without_key",
        "G4",
        &["gateway_charges", "gateway_totals"],
        provoked_by!(saga::lose_the_record_of_a_commanded_charge),
    )
    .not_shown("no nemesis kills payment between a commanded charge and its record, but by chance"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The patches in the order in which they apply, except the switch that comes first.
    fn series() -> Vec<&'static str> {
        include_str!("../series").lines().filter(|line| !line.starts_with('#') && *line != "00-switch").collect()
    }

    #[test]
    fn every_patch_has_a_provocation_and_every_provocation_a_patch() {
        assert_eq!(ALL.iter().map(|bug| bug.name).collect::<Vec<_>>(), series());
        assert_eq!(ALL.len(), 21);
    }

    #[test]
    fn every_bug_names_its_nemeses_or_why_it_has_none() {
        for bug in ALL {
            assert_ne!(bug.shown_by.is_empty(), bug.not_shown.is_empty(), "{}", bug.name);
            assert!(bug.shown_by.iter().all(|name| chaos::nemesis::named(name).is_some()), "{}", bug.name);
        }
    }
}
