//! The schedule of nemeses: rounds of one to three overlapping phases, with quiet times in which recovery is measured. Everything
//! is drawn from the seed; every nemesis strikes once before any strikes again.

use std::time::Duration;

use rand::{Rng, rngs::StdRng, seq::SliceRandom};

use crate::nemesis::{Kind, Nemesis};

/// Before the first strike, to measure the normal goodput.
const WARM_UP: Duration = Duration::from_secs(8);
/// One nemesis of each kind strikes alone twice, besides once with others, so that each kind's recovery is measured. Bursts only
/// strike alone.
const ALONE: [&str; 8] = [
    "kill_service",
    "kill_nats",
    "stop_postgres",
    "wipe_nats",
    "postgres_drop",
    "poison_messages",
    "kill_gateway",
    "unruly_clients",
];
/// Between rounds.
const SHORT_PAUSE: Duration = Duration::from_secs(5);
/// After the last phase, for recovery.
const TAIL: Duration = Duration::from_secs(25);

/// One strike of a nemesis.
#[derive(Debug, Clone)]
pub struct Phase {
    pub nemesis: &'static Nemesis,
    pub start: Duration,
    pub length: Duration,
    pub seed: u64,
}

/// Phases for a run of this length, in the order in which they start.
pub fn schedule(nemeses: &[&'static Nemesis], total: Duration, longest: Duration, rng: &mut StdRng) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut deck: Vec<Card> = Vec::new();
    let mut at = WARM_UP;
    let end = total.saturating_sub(TAIL);
    while at < end && !nemeses.is_empty() {
        let wanted = [1, 2, 2, 3, 3][rng.random_range(0..5)];
        let round = draw(nemeses, &mut deck, wanted, rng);
        let mut over = at;
        // The recovery from overlapping phases is not measured.
        let pause = if let [alone] = *round { pause_after(alone.kind) } else { SHORT_PAUSE };
        for nemesis in round {
            let start = at + Duration::from_millis(rng.random_range(0..1_500));
            let length = length(nemesis, rng).min(longest.max(Duration::from_secs_f64(nemesis.seconds.0)));
            // A held snapshot overlaps with the rounds that follow, and does not delay them.
            if nemesis.seconds.0 < 30.0 {
                over = over.max(start + length);
            }
            if start + length < total {
                phases.push(Phase { nemesis, start, length, seed: rng.random() });
            }
        }
        // At least a quarter of the time is quiet.
        at = over + pause.max((over - at) / 3);
    }
    phases.sort_by_key(|phase| phase.start);
    phases
}

fn length(nemesis: &Nemesis, rng: &mut StdRng) -> Duration {
    let (least, most) = nemesis.seconds;
    Duration::from_secs_f64(if least < most { rng.random_range(least..most) } else { least })
}

/// One planned strike of a nemesis.
#[derive(Debug, Clone, Copy)]
struct Card {
    nemesis: &'static Nemesis,
    /// Nothing else strikes while it does.
    alone: bool,
}

/// All nemeses, to be drawn from the end: those that strike alone come first, one after the other, so that each hits a healthy
/// suite.
fn shuffled(nemeses: &[&'static Nemesis], rng: &mut StdRng) -> Vec<Card> {
    let comes_alone = |nemesis: &&&'static Nemesis| ALONE.contains(&nemesis.name);
    let with_others = nemeses.iter().filter(|nemesis| nemesis.kind != Kind::Burst);
    let mut deck: Vec<Card> = with_others.map(|nemesis| Card { nemesis, alone: false }).collect();
    deck.shuffle(rng);
    let bursts = nemeses.iter().filter(|nemesis| nemesis.kind == Kind::Burst);
    let alone = nemeses.iter().filter(comes_alone).chain(nemeses.iter().filter(comes_alone)).chain(bursts);
    let mut alone: Vec<Card> = alone.map(|nemesis| Card { nemesis, alone: true }).collect();
    alone.shuffle(rng);
    deck.append(&mut alone);
    deck
}

/// The next nemeses of a shuffled deck that share no resource.
fn draw(nemeses: &[&'static Nemesis], deck: &mut Vec<Card>, wanted: usize, rng: &mut StdRng) -> Vec<&'static Nemesis> {
    let mut round: Vec<Card> = Vec::new();
    if deck.is_empty() {
        *deck = shuffled(nemeses, rng);
    }
    let mut place = deck.len();
    while place > 0 && round.len() < wanted {
        place -= 1;
        let candidate = deck[place];
        let in_the_way =
            |other: &Card| candidate.alone || other.alone || candidate.nemesis.needs == other.nemesis.needs;
        if !round.iter().any(in_the_way) {
            round.push(deck.remove(place));
        }
    }
    round.into_iter().map(|card| card.nemesis).collect()
}

/// Long enough for the recovery target.
fn pause_after(kind: Kind) -> Duration {
    /// Goodput is compared again this long after a burst.
    const AFTER_BURST: Duration = Duration::from_secs(36);
    if kind == Kind::Burst { AFTER_BURST } else { kind.recovery_target() + Duration::from_secs(2) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::nemesis::ALL;

    /// Minutes of a full run.
    const FULL: u64 = 14;

    fn phases(seed: u64, minutes: u64) -> Vec<Phase> {
        let nemeses: Vec<&'static Nemesis> = ALL.iter().collect();
        let total = Duration::from_secs(60 * minutes);
        schedule(&nemeses, total, Duration::from_secs(30), &mut StdRng::seed_from_u64(seed))
    }

    #[test]
    fn a_seed_repeats_the_schedule() {
        let names = |seed| phases(seed, 8).iter().map(|p| (p.nemesis.name, p.start, p.length)).collect::<Vec<_>>();
        assert_eq!(names(3), names(3));
        assert_ne!(names(3), names(4));
    }

    #[test]
    fn judged_nemeses_strike_alone_twice_with_quiet_after_them() {
        for seed in 0..50 {
            let phases = phases(seed, FULL);
            let seen = |phase: &&Phase| {
                let end = phase.start + phase.length;
                let others = || phases.iter().filter(|other| !std::ptr::eq(*other, *phase));
                others().all(|other| other.start > end || other.start + other.length < phase.start)
                    && others().all(|other| other.start < end || other.start >= end + pause_after(phase.nemesis.kind))
            };
            for name in ALONE {
                let alone = phases.iter().filter(|phase| phase.nemesis.name == name).filter(seen).count();
                assert!(alone >= 2, "seed {seed}: {name} {alone}");
            }
        }
    }

    #[test]
    fn every_nemesis_strikes_and_a_quarter_of_the_time_is_quiet() {
        for seed in 0..50 {
            let phases = phases(seed, FULL);
            for nemesis in ALL {
                assert!(phases.iter().any(|phase| phase.nemesis.name == nemesis.name), "seed {seed}: {}", nemesis.name);
            }
            let struck = (0..60 * FULL).filter(|second| {
                let at = Duration::from_secs(*second);
                let busy = |p: &Phase| p.nemesis.seconds.0 < 30.0 && p.start <= at && at < p.start + p.length;
                phases.iter().any(busy)
            });
            assert!(struck.count() as u64 <= 45 * FULL, "seed {seed}");
        }
    }
}
