//! A circuit breaker per saga step, shared by everyone who takes that step in this process. A call is
//! made with a permit, and its outcome is told to the permit; without one nothing may be called.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast, watch},
    time::{Instant, timeout_at},
};

use crate::{
    Overrides,
    circuit::{Circuit, Outcome, Snapshot, State},
};

/// How many changes a slow reader of [`Breakers::changes`] may be behind before it loses the oldest.
const CHANGES_KEPT: usize = 256;

/// All breakers of a process. Cheap to clone.
#[derive(Clone)]
pub struct Breakers {
    enabled: bool,
    overrides: Arc<Overrides>,
    by_step: Arc<Mutex<BTreeMap<&'static str, Breaker>>>,
    changes: broadcast::Sender<Change>,
}

impl Breakers {
    /// With `enabled` false every call is admitted and nothing is counted.
    pub fn new(enabled: bool, overrides: Overrides) -> Self {
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        Breakers { enabled, overrides: Arc::new(overrides), by_step: Arc::default(), changes }
    }

    /// Whether calls are counted, and refused while a breaker is open.
    pub fn are_enabled(&self) -> bool {
        self.enabled
    }

    /// The kill switch: every call is admitted, nothing is counted.
    pub fn disabled() -> Self {
        Breakers::new(false, Overrides::default())
    }

    /// The one breaker of this step, made when it is first asked for.
    pub fn of(&self, step: &saga::Step) -> Breaker {
        let policy = self.overrides.policy(step).breaker;
        let make = || Breaker::new(step.name, policy, self.enabled, self.changes.clone());
        lock(&self.by_step).entry(step.name).or_insert_with(make).clone()
    }

    /// The breaker of this name, if its step has been asked for before.
    pub fn named(&self, step: &str) -> Option<Breaker> {
        lock(&self.by_step).get(step).cloned()
    }

    /// What each breaker looks like now, by step name.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let breakers: Vec<Breaker> = lock(&self.by_step).values().cloned().collect();
        breakers.iter().map(Breaker::snapshot).collect()
    }

    /// Every change of state of every breaker from now on, in order for each of them.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

/// A breaker went from one state to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub step: &'static str,
    pub from: State,
    pub to: State,
    /// In words: `6 of the last 10 calls failed, the last one: connection refused`.
    pub why: String,
}

/// The breaker of one step. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Breaker {
    shared: Arc<Shared>,
}

struct Shared {
    step: &'static str,
    enabled: bool,
    circuit: Mutex<Circuit>,
    state: watch::Sender<State>,
    /// Wakes those who wait for room, to look again.
    room: Notify,
    changes: broadcast::Sender<Change>,
}

impl Breaker {
    fn new(step: &'static str, policy: saga::Breaker, enabled: bool, changes: broadcast::Sender<Change>) -> Self {
        let circuit = Mutex::new(Circuit::new(policy, Instant::now()));
        let (state, _) = watch::channel(State::Closed);
        Breaker { shared: Arc::new(Shared { step, enabled, circuit, state, room: Notify::new(), changes }) }
    }

    /// Asks whether a call may be made now. While half-open the permit is one of the few probes, so it
    /// is to be asked for right before the call and the call is to have a time limit.
    pub fn admit(&self) -> Result<Permit, Open> {
        if !self.shared.enabled {
            return Ok(Permit { call: None });
        }
        match self.with(Circuit::admit) {
            Ok(generation) => Ok(Permit { call: Some((self.clone(), generation)) }),
            Err(retry_in) => Err(Open { retry_in }),
        }
    }

    /// Waits until calls may be made, and says how many at once at most: the probes that are left, or
    /// `u32::MAX` while closed. It holds no place: whoever asks for a permit first gets it.
    pub async fn closed_or_probing(&self) -> u32 {
        loop {
            // Made before the look, so that a change between the look and the wait is not missed.
            let changed = self.shared.room.notified();
            let (room, state) = self.with(|circuit, now| (circuit.room(now), circuit.state()));
            match state {
                _ if room > 0 => return room,
                State::Open { until } => drop(timeout_at(until, changed).await),
                State::Closed | State::HalfOpen => changed.await,
            }
        }
    }

    /// The state as it changes. Open becomes half-open when someone asks for a permit, a snapshot or
    /// [`closed_or_probing`](Self::closed_or_probing) after `until`: no task runs for it.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.shared.state.subscribe()
    }

    /// Closes it and empties its window; calls under way no longer count. Totals and past failures stay.
    pub fn reset(&self) {
        self.with(Circuit::reset);
    }

    pub fn snapshot(&self) -> Snapshot {
        self.with(|circuit, now| circuit.snapshot(self.shared.step, self.shared.enabled, now))
    }

    /// Does something to the circuit and tells everyone concerned what that changed. Told under the
    /// lock, so that nobody hears of two changes in the wrong order; none of the senders blocks.
    fn with<T>(&self, act: impl FnOnce(&mut Circuit, Instant) -> T) -> T {
        let shared = &*self.shared;
        let mut circuit = lock(&shared.circuit);
        let now = Instant::now();
        let (from, places) = (circuit.state(), circuit.places());
        let result = act(&mut circuit, now);
        let to = circuit.state();
        if from != to {
            shared.state.send_replace(to);
            let change = Change { step: shared.step, from, to, why: circuit.why().to_owned() };
            // An error says that nobody listens.
            drop(shared.changes.send(change));
        }
        // Also when it opens again: those who wait for a probe's place now have a moment to wait for.
        if from != to || circuit.places() > places {
            shared.room.notify_waiters();
        }
        result
    }
}

/// The leave to make one call. Dropped without an outcome, as by a cancelled call, it is ignored.
#[must_use = "a permit that is dropped at once admits nothing"]
pub struct Permit {
    /// The breaker and its generation at the time; none when breakers are disabled or it is settled.
    call: Option<(Breaker, u64)>,
}

impl Permit {
    /// The system called did what it was asked to.
    pub fn success(mut self) {
        self.settle(Outcome::Success);
    }

    /// The system called did not answer, or answered that it cannot. `reason` is shown to operators.
    pub fn failure(mut self, reason: impl Into<String>) {
        self.settle(Outcome::Failure(reason.into()));
    }

    /// Says nothing about the system called: it refused for a business reason.
    pub fn ignored(mut self) {
        self.settle(Outcome::Ignored);
    }

    fn settle(&mut self, outcome: Outcome) {
        if let Some((breaker, generation)) = self.call.take() {
            breaker.with(|circuit, now| circuit.settle(generation, outcome, now));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.settle(Outcome::Ignored);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("generation", &self.call.as_ref().map(|call| call.1)).finish()
    }
}

/// The call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// When to ask again at the earliest. While all probes are under way this is only a guess.
    pub retry_in: Duration,
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the circuit breaker is open, next probe in {:.1?}", self.retry_in)
    }
}

impl std::error::Error for Open {}

/// No code that can panic half-way through a change runs under these locks, so a poisoned one is sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
