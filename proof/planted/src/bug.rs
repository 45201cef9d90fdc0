//! The eighteen planted bugs: each is a patch of the same name in this crate's folder, with its provocation here.

use std::{future::Future, pin::Pin};

use crate::{
    experiment::Experiment,
    oracle::{BREAKERS, GOOD_ORDERS},
    provoke,
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
    /// Why no nemesis provokes it, if none does.
    pub not_shown: &'static str,
    /// Settings of the suite that let it show soon.
    pub settings: &'static [(&'static str, &'static str)],
    pub replicas: usize,
    pub provoke: Provocation,
}

/// Provokes the mistake; what is detected meanwhile is added to the experiment.
pub type Provocation = for<'s> fn(&'s mut Experiment) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

pub fn named(name: &str) -> Option<&'static Bug> {
    ALL.iter().find(|bug| bug.name == name)
}

/// Boxes the future of a provocation.
macro_rules! provoked_by {
    ($provoke:path) => {
        |experiment| Box::pin($provoke(experiment))
    };
}

/// The defaults: one replica of each service, and no settings.
const PLAIN: Bug = Bug {
    name: "",
    breaks: "",
    noticed_by: &[],
    shown_by: &[],
    not_shown: "",
    settings: &[],
    replicas: 1,
    provoke: provoked_by!(provoke::gateway::decline_everything),
};

pub const ALL: &[Bug] = &[
    Bug {
        name: "ack_before_commit",
        breaks: "G1",
        noticed_by: &["acknowledged_was_had"],
        shown_by: &["terminate_backend", "kill_service"],
        provoke: provoked_by!(provoke::consumer::crash_before_commit),
        ..PLAIN
    },
    Bug {
        name: "no_inbox",
        breaks: "G3",
        noticed_by: &["steps_taken_once"],
        shown_by: &["duplicate_events", "old_events"],
        provoke: provoked_by!(provoke::consumer::publish_in_triplicate),
        ..PLAIN
    },
    Bug {
        name: "claim_before_work",
        breaks: "G1",
        noticed_by: &["claims_took_effect"],
        shown_by: &["kill_service", "terminate_backend"],
        provoke: provoked_by!(provoke::consumer::crash_before_commit),
        ..PLAIN
    },
    Bug {
        name: "inbox_by_sequence",
        breaks: "G3",
        noticed_by: &[GOOD_ORDERS],
        shown_by: &["wipe_nats"],
        settings: &[("SAGA_DEADLINE", "20s")],
        provoke: provoked_by!(provoke::broker::begin_the_sequences_again),
        ..PLAIN
    },
    Bug {
        name: "move_before_publish",
        breaks: "G2",
        noticed_by: &["published_in_stream"],
        shown_by: &["kill_nats", "nats_reset"],
        provoke: provoked_by!(provoke::relay::crash_before_publishing),
        ..PLAIN
    },
    Bug {
        name: "cursor_relay",
        breaks: "G1",
        noticed_by: &["outbox_empty", GOOD_ORDERS],
        shown_by: &["postgres_latency", "hog_locks"],
        provoke: provoked_by!(provoke::relay::commit_out_of_order),
        ..PLAIN
    },
    Bug {
        name: "unconditional_timeout",
        breaks: "G1",
        noticed_by: &["journal_legal"],
        shown_by: &["gateway_slow"],
        settings: &[("SAGA_DEADLINE", "2s"), ("TIMEOUT_CHECK_EVERY", "100ms"), ("GATEWAY_SLOW_ANSWER", "2200ms")],
        provoke: provoked_by!(provoke::saga::succeed_after_the_deadline),
        ..PLAIN
    },
    Bug {
        name: "read_then_write_stock",
        breaks: "G4",
        noticed_by: &["stock_conserved"],
        shown_by: &["burst"],
        replicas: 2,
        provoke: provoked_by!(provoke::stock::sell_the_last_units_at_once),
        ..PLAIN
    },
    Bug {
        name: "no_tombstone",
        breaks: "G5",
        noticed_by: &["nothing_held_on_cancelled"],
        shown_by: &["freeze_service", "nats_latency"],
        provoke: provoked_by!(provoke::saga::cancel_before_the_step),
        ..PLAIN
    },
    Bug {
        name: "breaker_counts_refusals",
        breaks: "G9",
        noticed_by: &[BREAKERS],
        not_shown: "too few cards are declined in a row to open a breaker",
        settings: &[("RESILIENCE", "process_payment.open_for=2s")],
        ..PLAIN
    },
    Bug {
        name: "broker_dedup_only",
        breaks: "G3",
        noticed_by: &["steps_taken_once"],
        shown_by: &["nats_acks_lost", "old_events"],
        provoke: provoked_by!(provoke::consumer::lose_acknowledgements),
        ..PLAIN
    },
    Bug {
        name: "no_reconciler",
        breaks: "G7",
        noticed_by: &[GOOD_ORDERS],
        not_shown: "a saga's last event is published again at half its deadline, and no nemesis empties the broker twice for one",
        settings: &[("SAGA_DEADLINE", "24s")],
        provoke: provoked_by!(provoke::broker::empty_it_twice),
        ..PLAIN
    },
    Bug {
        name: "compensation_without_receipt",
        breaks: "G6",
        noticed_by: &["nothing_held_on_cancelled"],
        shown_by: &["freeze_service", "kill_service"],
        provoke: provoked_by!(provoke::saga::cancel_while_a_participant_is_away),
        ..PLAIN
    },
    Bug {
        name: "no_void_for_tombstones",
        breaks: "G4",
        noticed_by: &["gateway_charges", "gateway_totals"],
        not_shown: "no nemesis sets the database back, so payment forgets no charge",
        provoke: provoked_by!(provoke::gateway::forget_charges),
        ..PLAIN
    },
    Bug {
        name: "attempts_burnt_while_unpublished",
        breaks: "G10",
        noticed_by: &["no_saga_stuck"],
        not_shown: "late confirmations end a FAILED saga, and the judge looks when everything is healed",
        settings: &[("COMPENSATION_DEADLINE", "100ms"), ("COMPENSATION_CHECK_EVERY", "100ms")],
        provoke: provoked_by!(provoke::saga::cancel_while_the_relay_is_paused),
        ..PLAIN
    },
    Bug {
        name: "unknown_version_buried",
        breaks: "G12",
        noticed_by: &["dead_letters"],
        not_shown: "no newer build takes the events that unknown_version forges: they become dead letters in any case",
        provoke: provoked_by!(provoke::consumer::publish_for_a_newer_build),
        ..PLAIN
    },
    Bug {
        name: "retention_before_consumption",
        breaks: "G1",
        noticed_by: &[GOOD_ORDERS],
        not_shown: "no nemesis keeps all replicas of a consumer away until what has stalled is published again",
        settings: &[("SAGA_DEADLINE", "36s"), ("STREAM_MAX_BYTES", "100000")],
        provoke: provoked_by!(provoke::broker::fill_most_of_a_stream),
        ..PLAIN
    },
    Bug {
        name: "refusal_counted_against_processor",
        breaks: "G9",
        noticed_by: &[BREAKERS],
        not_shown: "no client of chaos has a charge that the card processor rejects for good",
        settings: &[("SAGA_DEADLINE", "20s"), ("RESILIENCE", "process_payment.open_for=2s")],
        provoke: provoked_by!(provoke::gateway::reject_charges_for_good),
        ..PLAIN
    },
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
        assert_eq!(ALL.len(), 18);
    }

    #[test]
    fn every_bug_names_its_nemeses_or_why_it_has_none() {
        for bug in ALL {
            assert_ne!(bug.shown_by.is_empty(), bug.not_shown.is_empty(), "{}", bug.name);
            assert!(bug.shown_by.iter().all(|name| chaos::nemesis::named(name).is_some()), "{}", bug.name);
        }
    }
}
