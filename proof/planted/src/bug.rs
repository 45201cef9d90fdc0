//! The thirteen mistakes: each is a patch of the same name beside this crate, and has a provocation here.

use std::{future::Future, pin::Pin};

use crate::{provoke, scene::Scene};

/// A classic mistake and how to bring it out.
pub struct Bug {
    /// Also the name of its patch, and the value of PLANTED.
    pub name: &'static str,
    /// The guarantee that it breaks, as the README counts them.
    pub breaks: &'static str,
    /// Settings of the suite in which it shows soon.
    pub settings: &'static [(&'static str, &'static str)],
    pub replicas: usize,
    pub provoke: Provocation,
}

/// Does to the suite what brings the mistake out; what it notices meanwhile goes to the scene.
pub type Provocation = for<'s> fn(&'s mut Scene) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

/// The bug of this name.
pub fn named(name: &str) -> Option<&'static Bug> {
    ALL.iter().find(|bug| bug.name == name)
}

macro_rules! bug {
    ($name:ident, $breaks:literal, $provoke:path, $replicas:literal, [$(($key:literal, $value:literal)),* $(,)?]) => {
        Bug {
            name: stringify!($name),
            breaks: $breaks,
            settings: &[$(($key, $value)),*],
            replicas: $replicas,
            provoke: |scene| Box::pin($provoke(scene)),
        }
    };
}

pub const ALL: &[Bug] = &[
    bug!(ack_before_commit, "G1", provoke::consumer::crash_before_commit, 1, []),
    bug!(no_inbox, "G3", provoke::consumer::publish_in_triplicate, 1, []),
    bug!(claim_before_work, "G1", provoke::consumer::crash_before_commit, 1, []),
    bug!(inbox_by_sequence, "G3", provoke::broker::begin_the_sequences_again, 1, [("SAGA_DEADLINE", "20s")]),
    bug!(move_before_publish, "G2", provoke::relay::crash_before_publishing, 1, []),
    bug!(cursor_relay, "G1", provoke::relay::commit_out_of_order, 1, []),
    bug!(
        unconditional_timeout,
        "G1",
        provoke::saga::succeed_after_the_deadline,
        1,
        [("SAGA_DEADLINE", "2s"), ("TIMEOUT_CHECK_EVERY", "100ms"), ("GATEWAY_SLOW_ANSWER", "2500ms")]
    ),
    bug!(read_then_write_stock, "G4", provoke::stock::sell_the_last_units_at_once, 2, []),
    bug!(no_tombstone, "G5", provoke::saga::cancel_before_the_step, 1, []),
    bug!(breaker_counts_refusals, "G9", provoke::gateway::decline_everything, 1, []),
    bug!(broker_dedup_only, "G3", provoke::consumer::lose_acknowledgements, 1, []),
    bug!(no_reconciler, "G7", provoke::broker::empty_it_twice, 1, [("SAGA_DEADLINE", "24s")]),
    bug!(compensation_without_receipt, "G6", provoke::saga::cancel_while_a_participant_is_away, 1, []),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The patches in the order in which they apply, but for the switch that comes first.
    fn series() -> Vec<&'static str> {
        include_str!("../series").lines().filter(|line| !line.starts_with('#') && *line != "00-switch").collect()
    }

    #[test]
    fn every_patch_has_a_provocation_and_every_provocation_a_patch() {
        assert_eq!(ALL.iter().map(|bug| bug.name).collect::<Vec<_>>(), series());
        assert_eq!(ALL.len(), 13);
    }
}
