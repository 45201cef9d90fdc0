//! Compares the breaker with a naive model, over random calls, outcomes, waits and resets.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tokio::time::advance;

use saga::Step;

use crate::{Breakers, Open, Overrides, Permit, breaker_tests::STEP};

#[derive(Debug, Clone)]
enum Action {
    Admit,
    /// The outcome of the call in flight at this index.
    Report(prop::sample::Index, End),
    Wait(u64),
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Success,
    Failure,
    Ignored,
    Dropped,
}

/// Keeps all calls of the present phase and recomputes the state from them each time.
struct Model {
    policy: saga::Breaker,
    percent: usize,
    now: u64,
    phase: Phase,
    /// The number of the phase.
    number: usize,
    window: Vec<bool>,
}

enum Phase {
    Closed,
    Open { since: u64 },
    HalfOpen { running: usize, succeeded: usize, answered: bool, failed: bool },
}

impl Model {
    fn enter(&mut self, phase: Phase) {
        if matches!(phase, Phase::Closed) {
            self.window.clear();
        }
        self.phase = phase;
        self.number += 1;
    }

    fn probe_when_due(&mut self) {
        if matches!(self.phase, Phase::Open { since } if self.now - since >= self.open_for()) {
            self.enter(Phase::HalfOpen { running: 0, succeeded: 0, answered: false, failed: false });
        }
    }

    fn open_for(&self) -> u64 {
        u64::try_from(self.policy.open_for.as_millis()).expect("a short time")
    }

    fn admit(&mut self) -> bool {
        self.probe_when_due();
        match &mut self.phase {
            Phase::Closed => true,
            Phase::Open { .. } => false,
            Phase::HalfOpen { running, succeeded, .. } => {
                let free = *running + *succeeded < self.policy.half_open_probes as usize;
                *running += usize::from(free);
                free
            }
        }
    }

    fn report(&mut self, number: usize, end: End) {
        if number != self.number {
            return;
        }
        let counted = matches!(end, End::Success | End::Failure);
        match &mut self.phase {
            Phase::HalfOpen { running, succeeded, answered, failed } => {
                *running -= 1;
                *succeeded += usize::from(end == End::Success);
                *answered |= end == End::Success;
                *failed |= end == End::Failure;
                let over = *running == 0;
                if *succeeded == self.policy.half_open_probes as usize {
                    self.enter(Phase::Closed);
                } else if over && *failed && !*answered {
                    self.enter(Phase::Open { since: self.now });
                } else if over {
                    (*answered, *failed) = (false, false);
                }
            }
            Phase::Closed if counted => {
                self.window.push(end == End::Failure);
                let last = self.last_calls();
                let failures = last.iter().filter(|failed| **failed).count();
                let enough = last.len() >= self.policy.min_calls as usize;
                if enough && failures > 0 && failures * 100 >= self.percent * last.len() {
                    self.enter(Phase::Open { since: self.now });
                }
            }
            Phase::Closed | Phase::Open { .. } => {}
        }
    }

    fn last_calls(&self) -> &[bool] {
        &self.window[self.window.len().saturating_sub(self.policy.window as usize)..]
    }

    fn label(&self) -> &'static str {
        match self.phase {
            Phase::Closed => "closed",
            Phase::Open { .. } => "open",
            Phase::HalfOpen { .. } => "half-open",
        }
    }
}

async fn agree(policy: saga::Breaker, percent: usize, actions: Vec<Action>) -> Result<(), TestCaseError> {
    let breaker = Breakers::new(true, Overrides::default()).of(&Step { breaker: policy, ..STEP });
    let mut model = Model { policy, percent, now: 0, phase: Phase::Closed, number: 0, window: Vec::new() };
    let mut in_flight: Vec<(Permit, usize)> = Vec::new();
    for action in actions {
        match action {
            Action::Admit => match (breaker.admit(), model.admit()) {
                (Ok(permit), true) => in_flight.push((permit, model.number)),
                (Err(Open { retry_in }), false) => match model.phase {
                    Phase::Open { since } => {
                        prop_assert_eq!(retry_in, policy.open_for - Duration::from_millis(model.now - since));
                    }
                    _ => prop_assert!(retry_in <= policy.open_for),
                },
                (answer, expected) => prop_assert!(false, "{answer:?}, but admitted should be {expected}"),
            },
            Action::Report(place, end) if !in_flight.is_empty() => {
                let (permit, number) = in_flight.swap_remove(place.index(in_flight.len()));
                model.report(number, end);
                match end {
                    End::Success => permit.success(),
                    End::Failure => permit.failure("no answer"),
                    End::Ignored => permit.ignored(),
                    End::Dropped => drop(permit),
                }
            }
            Action::Report(..) => {}
            Action::Wait(millis) => {
                advance(Duration::from_millis(millis)).await;
                model.now += millis;
            }
            Action::Reset => {
                breaker.reset();
                model.enter(Phase::Closed);
            }
        }
        model.probe_when_due();
        let snapshot = breaker.snapshot();
        prop_assert_eq!(snapshot.state.label(), model.label());
        prop_assert_eq!(&snapshot.window[..], model.last_calls());
    }
    Ok(())
}

fn action() -> impl Strategy<Value = Action> {
    let end =
        prop_oneof![2 => Just(End::Success), 3 => Just(End::Failure), 1 => Just(End::Ignored), 1 => Just(End::Dropped)];
    prop_oneof![
        10 => Just(Action::Admit),
        9 => (any::<prop::sample::Index>(), end).prop_map(|(place, end)| Action::Report(place, end)),
        2 => (0u64..800).prop_map(Action::Wait),
        1 => Just(Action::Reset),
    ]
}

proptest! {
    #[test]
    fn the_breaker_agrees_with_a_naive_model(
        (window, min_calls) in (1u32..8).prop_flat_map(|window| (Just(window), 1..=window)),
        percent in 0usize..=100,
        millis in 0u64..1_000,
        half_open_probes in 1u32..4,
        actions in vec(action(), 0..200),
    ) {
        let open_for = Duration::from_millis(millis);
        let policy = saga::Breaker { window, min_calls, failure_rate: percent as f64 / 100.0, open_for, half_open_probes };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(agree(policy, percent, actions))?;
    }
}
