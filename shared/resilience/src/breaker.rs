//! A circuit breaker per saga step, shared by all its consumers in this process. Each call needs a permit, to which its outcome
//! is reported.

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

/// How many changes a slow receiver of [`Breakers::changes`] may lag behind before it loses the oldest.
const CHANGES_CAPACITY: usize = 256;

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
        let (changes, _) = broadcast::channel(CHANGES_CAPACITY);
        Breakers { enabled, overrides: Arc::new(overrides), by_step: Arc::default(), changes }
    }

    /// The kill switch: every call is admitted, nothing is counted.
    pub fn disabled() -> Self {
        Breakers::new(false, Overrides::default())
    }

    /// The breaker of this step, created at the first call.
    pub fn of(&self, step: &saga::Step) -> Breaker {
        let policy = self.overrides.policy(step).breaker;
        let make = || Breaker::new(step.name, policy, self.enabled, self.changes.clone());
        lock(&self.by_step).entry(step.name).or_insert_with(make).clone()
    }

    /// The breaker of this step, if it was created before.
    pub fn named(&self, step: &str) -> Option<Breaker> {
        lock(&self.by_step).get(step).cloned()
    }

    /// A snapshot of each breaker, by step name.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let breakers: Vec<Breaker> = lock(&self.by_step).values().cloned().collect();
        breakers.iter().map(Breaker::snapshot).collect()
    }

    /// The state changes of all breakers from now on, in order for each breaker.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

/// A state change of a breaker.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub step: &'static str,
    pub from: State,
    pub to: State,
    /// The reason, such as `6 of the last 10 calls failed, the last one: connection refused`.
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
    /// Wakes the tasks that wait for capacity, to check again.
    capacity_changed: Notify,
    changes: broadcast::Sender<Change>,
}

impl Breaker {
    fn new(step: &'static str, policy: saga::Breaker, enabled: bool, changes: broadcast::Sender<Change>) -> Self {
        let circuit = Mutex::new(Circuit::new(policy, Instant::now()));
        let (state, _) = watch::channel(State::Closed);
        Breaker { shared: Arc::new(Shared { step, enabled, circuit, state, capacity_changed: Notify::new(), changes }) }
    }

    /// Requests a permit for one call. While half-open it is one of the few probes, so request it right before the call, and
    /// give the call a timeout.
    pub fn admit(&self) -> Result<Permit, Open> {
        if !self.shared.enabled {
            return Ok(Permit { call: None });
        }
        match self.with(Circuit::admit) {
            Ok(generation) => Ok(Permit { call: Some((self.clone(), generation)) }),
            Err(retry_in) => Err(Open { retry_in }),
        }
    }

    /// Waits until calls are permitted, and returns how many concurrently: the probes that are left, or `u32::MAX` while
    /// closed. It reserves no permit.
    pub async fn closed_or_probing(&self) -> u32 {
        loop {
            // Registered before the check, so that a change between the check and the wait is not missed.
            let changed = self.shared.capacity_changed.notified();
            let (capacity, state) = self.with(|circuit, now| (circuit.capacity_at(now), circuit.state()));
            match state {
                _ if capacity > 0 => return capacity,
                State::Open { until } => drop(timeout_at(until, changed).await),
                State::Closed | State::HalfOpen => changed.await,
            }
        }
    }

    /// The state as it changes. Open becomes half-open at the first request of a permit, a snapshot or
    /// [`closed_or_probing`](Self::closed_or_probing) after `until`: no task runs for it.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.shared.state.subscribe()
    }

    /// Closes it and empties its window; calls in flight no longer count. Totals and past failures stay.
    pub fn reset(&self) {
        self.with(Circuit::reset);
    }

    pub fn snapshot(&self) -> Snapshot {
        self.with(|circuit, now| circuit.snapshot(self.shared.step, self.shared.enabled, now))
    }

    /// Changes the circuit and publishes state changes. It publishes under the lock, so that changes stay in order; none of the
    /// senders blocks.
    fn with<T>(&self, act: impl FnOnce(&mut Circuit, Instant) -> T) -> T {
        let shared = &*self.shared;
        let mut circuit = lock(&shared.circuit);
        let now = Instant::now();
        let (from, capacity) = (circuit.state(), circuit.capacity());
        let result = act(&mut circuit, now);
        let to = circuit.state();
        if from != to {
            shared.state.send_replace(to);
            let change = Change { step: shared.step, from, to, why: circuit.why().to_owned() };
            // Fails only without receivers.
            drop(shared.changes.send(change));
        }
        // Also when it opens again: tasks that wait for a probe then wait until the next probes are due.
        if from != to || circuit.capacity() > capacity {
            shared.capacity_changed.notify_waiters();
        }
        result
    }
}

/// The permit for one call. Dropped without an outcome, as by a cancelled call, it counts as ignored.
#[must_use = "a permit that is dropped at once admits nothing"]
pub struct Permit {
    /// The breaker and its generation at the time; `None` when breakers are disabled or the outcome was reported.
    call: Option<(Breaker, u64)>,
}

impl Permit {
    /// The called system succeeded.
    pub fn success(mut self) {
        self.report(Outcome::Success);
    }

    /// The called system did not respond, or responded with a failure. `reason` is shown to operators.
    pub fn failure(mut self, reason: impl Into<String>) {
        self.report(Outcome::Failure(reason.into()));
    }

    /// The outcome says nothing about the called system, as a business refusal.
    pub fn ignored(mut self) {
        self.report(Outcome::Ignored);
    }

    fn report(&mut self, outcome: Outcome) {
        if let Some((breaker, generation)) = self.call.take() {
            breaker.with(|circuit, now| circuit.record(generation, outcome, now));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.report(Outcome::Ignored);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("generation", &self.call.as_ref().map(|call| call.1)).finish()
    }
}

/// The call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the circuit breaker is open, next probe in {retry_in:.1?}")]
pub struct Open {
    /// When to try again at the earliest. While all probes are in flight this is an estimate.
    pub retry_in: Duration,
}

/// No code that can panic during a change runs under these locks, so a poisoned lock is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
