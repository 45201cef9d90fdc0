//! Passes of fault points: which fault hits a pass, and its injection.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Counter, Hit, Sink};
use crate::{Armed, FaultPoint, Guard, Injected, Kind, Pass, Subject, armed::Fault};

#[derive(Default)]
pub(super) struct Registry {
    pub(super) guards: Vec<Guard>,
    /// A bit per point at which a fault may hit a pass. Only the state under the lock is exact.
    pub(super) points: AtomicU32,
    pub(super) state: Mutex<State>,
    pub(super) sink: OnceLock<Sink>,
    pub(super) counter: OnceLock<Counter>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) last_id: u64,
    /// In the order of their ids.
    pub(super) faults: Vec<Fault>,
    /// The ids of all shared faults that were ever armed here: a fault that is gone is not armed again.
    pub(super) shared: BTreeSet<u64>,
    pub(super) hits: BTreeMap<(FaultPoint, Kind), u64>,
}

/// A fault that concerns a pass, and until when.
struct Candidate {
    armed: Armed,
    ends: Instant,
    life: watch::Receiver<()>,
}

impl Registry {
    pub(super) fn is_armed_at(&self, point: FaultPoint) -> bool {
        self.points.load(Ordering::Relaxed) & bit(point) != 0
    }

    pub(super) fn is_armed(&self) -> bool {
        self.points.load(Ordering::Relaxed) != 0 && self.with(|state| state.points() != 0)
    }

    pub(super) fn concerns(&self, points: &[FaultPoint], subject: impl FnOnce() -> Subject) -> bool {
        if !points.iter().any(|point| self.is_armed_at(*point)) {
            return false;
        }
        let subject = subject();
        self.with(|state| state.faults.iter().any(|fault| points.iter().any(|point| fault.concerns(*point, &subject))))
    }

    pub(super) async fn pass(&self, point: FaultPoint, subject: Subject) -> Result<Pass, Injected> {
        let Some(fault) = self.first_hit(point, &subject).await else { return Ok(Pass::Unharmed) };
        let (fault_id, kind) = (fault.armed.id, fault.armed.spec.kind);
        tracing::warn!(fault = fault_id, point = point.as_str(), kind = kind.as_str(), "injecting a fault");
        if let Some(sink) = self.sink.get() {
            sink(Hit { fault_id, point, kind, subject }).await;
        }
        // Disarmed while its hit was recorded.
        if fault.life.has_changed().is_err() {
            return Ok(Pass::Unharmed);
        }
        fault.inject().await
    }

    /// Counts the pass for the faults that concern it, up to the first that hits it.
    async fn first_hit(&self, point: FaultPoint, subject: &Subject) -> Option<Candidate> {
        let mut after = 0;
        loop {
            let candidate = self.with(|state| state.next_candidate(after, point, subject))?;
            after = candidate.armed.id;
            let number = match self.counter.get().filter(|_| candidate.armed.shared) {
                Some(count) => count(candidate.armed.clone()).await,
                None => None,
            };
            if self.with(|state| state.count_pass(after, number)) {
                return Some(candidate);
            }
        }
    }

    /// Reads or changes the active faults.
    pub(super) fn with<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.faults.retain(|fault| fault.is_active(now));
        let seen = access(&mut state);
        self.points.store(state.points(), Ordering::Relaxed);
        seen
    }
}

impl State {
    fn points(&self) -> u32 {
        self.faults
            .iter()
            .filter(|fault| !fault.armed.is_done())
            .fold(0, |bits, fault| bits | bit(fault.armed.spec.point))
    }

    pub(super) fn insert(&mut self, fault: Fault) {
        let place = self.faults.partition_point(|other| other.armed.id < fault.armed.id);
        self.faults.insert(place, fault);
    }

    /// The first fault with a later id that concerns the pass.
    fn next_candidate(&self, after: u64, point: FaultPoint, subject: &Subject) -> Option<Candidate> {
        let mut later = self.faults.iter().filter(|fault| fault.armed.id > after);
        let fault = later.find(|fault| fault.concerns(point, subject))?;
        Some(Candidate { armed: fault.armed.clone(), ends: fault.ends, life: fault.life.subscribe() })
    }

    /// Counts the pass for this fault, if it is still active. Returns whether the pass is hit.
    fn count_pass(&mut self, id: u64, number: Option<u64>) -> bool {
        let Some(fault) = self.faults.iter_mut().find(|fault| fault.armed.id == id) else { return false };
        // Meanwhile other passes may have been the last one; a pass with a number keeps its own.
        if (number.is_none() && fault.armed.is_done()) || !fault.count_pass(number) {
            return false;
        }
        *self.hits.entry((fault.armed.spec.point, fault.armed.spec.kind)).or_default() += 1;
        true
    }
}

impl Candidate {
    async fn inject(self) -> Result<Pass, Injected> {
        let Armed { id: fault_id, spec, .. } = self.armed;
        match spec.kind {
            Kind::Error => return Err(Injected { point: spec.point, fault_id }),
            Kind::Latency => {
                let latency = Duration::from_millis(spec.latency_ms.unwrap_or_default());
                delay(self.life, self.ends.min(Instant::now() + latency)).await;
            }
            Kind::Hang => delay(self.life, self.ends).await,
            Kind::Crash => std::process::abort(),
            Kind::Duplicate => return Ok(Pass::Duplicate { copies: spec.copies.unwrap_or_default() }),
            Kind::Drop => return Ok(Pass::Drop),
            Kind::Decline => return Ok(Pass::Decline),
        }
        Ok(Pass::Unharmed)
    }
}

/// Waits until this time, or until the fault is disarmed.
async fn delay(mut life: watch::Receiver<()>, until: Instant) {
    // No value is ever sent: this resolves when the sender is dropped with its fault.
    let _ = timeout_at(until, life.changed()).await;
}

const fn bit(point: FaultPoint) -> u32 {
    1 << point as u32
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registry { guards, state, .. } = self;
        f.debug_struct("Registry").field("guards", guards).field("state", state).finish_non_exhaustive()
    }
}
