//! The faults armed in this process. A pass costs one atomic load while nothing is armed at its point, and expired
//! faults are forgotten whenever anybody looks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    Armed, FaultPoint, FaultSpec, Guard, Injected, Kind, Pass, Refused, Subject,
    armed::{Fault, new_shared_id},
};

/// A fault that is about to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub fault_id: u64,
    pub point: FaultPoint,
    pub kind: Kind,
    pub subject: Subject,
}

/// Where hits are written down.
pub type Sink = Arc<dyn Fn(Hit) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Numbers the passes of a shared fault from 1: no two passes get the same number. None when it cannot.
pub type Counter = Arc<dyn Fn(Armed) -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync>;

/// The faults armed in this process. Cheap to clone; clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    registry: Option<Arc<Registry>>,
}

impl Faults {
    /// No faults, now or ever.
    pub const fn none() -> Self {
        Faults { registry: None }
    }

    /// No faults yet, but [`Faults::arm`] works.
    pub fn armable() -> Self {
        Faults::armable_without(Vec::new())
    }

    /// Like [`Faults::armable`], with these mechanisms switched off.
    pub fn armable_without(guards: Vec<Guard>) -> Self {
        Faults { registry: Some(Arc::new(Registry { guards, ..Registry::default() })) }
    }

    /// Whether this process lets itself be harmed at all.
    pub fn is_armable(&self) -> bool {
        self.registry.is_some()
    }

    /// Whether a mechanism is switched off, to show what it is for.
    pub fn without(&self, guard: Guard) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.guards.contains(&guard))
    }

    /// Whether any fault may still hit a pass. One atomic load while there is none.
    pub fn is_armed(&self) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.is_armed())
    }

    /// Whether a fault at one of these points may hit a pass with this subject.
    pub fn concerns(&self, points: &[FaultPoint], subject: impl FnOnce() -> Subject) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.concerns(points, subject))
    }

    /// Passes a point. The first fault by id which is meant for this pass and hits it acts: latency, hang and crash
    /// happen in here, an error is the `Err`, everything else is for the caller to act out. A latency or a hang ends
    /// early when its fault is disarmed or expires. `subject` is only asked when something is armed at this point.
    pub async fn at(&self, point: FaultPoint, subject: impl FnOnce() -> Subject) -> Result<Pass, Injected> {
        match &self.registry {
            // Boxed, so that the futures of all who pass stay small.
            Some(registry) if registry.is_armed_at(point) => Box::pin(registry.pass(point, subject())).await,
            _ => Ok(Pass::Unharmed),
        }
    }

    /// Arms a fault in this process, from now until it expires, is disarmed, or has hit as many passes as it should.
    pub fn arm(&self, spec: FaultSpec, armed_by: &str) -> Result<Armed, Refused> {
        let registry = self.registry.as_ref().ok_or(Refused::NotArmable)?;
        spec.validate()?;
        let armed = registry.with(|state| {
            state.last_id += 1;
            let armed = Armed::new(state.last_id, spec, armed_by);
            state.insert(Fault::new(armed.clone(), armed.lasts()));
            armed
        });
        tracing::warn!(fault = armed.id, spec = ?armed.spec, armed_by, "fault armed");
        Ok(armed)
    }

    /// A fault for all replicas of the service, armed in none of them yet: see [`Faults::hold`].
    pub fn draft(&self, spec: FaultSpec, armed_by: &str) -> Result<Armed, Refused> {
        self.registry.as_ref().ok_or(Refused::NotArmable)?;
        spec.validate()?;
        Ok(Armed { shared: true, ..Armed::new(new_shared_id(), spec, armed_by) })
    }

    /// Arms a drafted fault in this replica for so long, unless it has held it before. Returns whether it now does.
    pub fn hold(&self, armed: &Armed, lasts: Duration) -> bool {
        let Some(registry) = &self.registry else { return false };
        let (new, held) = registry.with(|state| {
            let new = state.shared.insert(armed.id);
            if new {
                state.insert(Fault::new(armed.clone(), lasts));
            }
            (new, state.faults.iter().any(|fault| fault.armed.id == armed.id))
        });
        if new {
            tracing::warn!(fault = armed.id, spec = ?armed.spec, armed.armed_by, "fault armed");
        }
        held
    }

    /// Takes note that other replicas have seen passes of a shared fault: so many in all.
    pub fn seen(&self, id: u64, passes: u64) {
        self.with(|state| {
            for fault in state.faults.iter_mut().filter(|fault| fault.armed.id == id) {
                fault.armed.passes = fault.armed.passes.max(passes);
            }
        });
    }

    /// Has the passes of shared faults numbered for all replicas together. A pass waits for the counter, so the counter
    /// bounds its own time; without a number this replica goes on by itself. Set once: a later counter is not called.
    pub fn count_with(&self, counter: Counter) {
        if let Some(registry) = &self.registry {
            let _ = registry.counter.set(counter);
        }
    }

    /// The faults that live, by id: also one that has hit all it should, while it still holds one of its passes.
    pub fn armed(&self) -> Vec<Armed> {
        self.with(|state| state.faults.iter().map(|fault| fault.armed.clone()).collect())
    }

    /// Disarms this fault. Returns whether it lived.
    pub fn disarm(&self, id: u64) -> bool {
        self.disarm_those(|fault| fault.armed.id == id) > 0
    }

    /// Disarms every fault. Returns how many lived.
    pub fn disarm_all(&self) -> usize {
        self.disarm_those(|_| true)
    }

    /// How often what happened where, since the process started.
    pub fn hits(&self) -> BTreeMap<(FaultPoint, Kind), u64> {
        self.with(|state| state.hits.clone())
    }

    /// Has every hit written down before the fault acts, also before a crash. The pass waits for the sink, so the sink
    /// bounds its own time. Set once: a later sink is not called.
    pub fn on_hit(&self, sink: Sink) {
        if let Some(registry) = &self.registry {
            let _ = registry.sink.set(sink);
        }
    }

    fn disarm_those(&self, which: impl Fn(&Fault) -> bool) -> usize {
        let disarmed: Vec<u64> =
            self.with(|state| state.faults.extract_if(.., |fault| which(fault)).map(|fault| fault.armed.id).collect());
        if !disarmed.is_empty() {
            tracing::warn!(faults = ?disarmed, "faults disarmed");
        }
        disarmed.len()
    }

    fn with<T: Default>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        self.registry.as_ref().map(|registry| registry.with(look)).unwrap_or_default()
    }
}

#[derive(Default)]
struct Registry {
    guards: Vec<Guard>,
    /// A bit per point at which a fault may hit a pass. Whether it still does is known under the lock only.
    points: AtomicU32,
    state: Mutex<State>,
    sink: OnceLock<Sink>,
    counter: OnceLock<Counter>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    /// In the order of their ids.
    faults: Vec<Fault>,
    /// Every shared fault that was ever held here: one that is gone does not come back.
    shared: BTreeSet<u64>,
    hits: BTreeMap<(FaultPoint, Kind), u64>,
}

/// A fault that a pass concerns, kept until it is known whether it hits.
struct Candidate {
    armed: Armed,
    life: watch::Receiver<()>,
}

/// What happens to a pass, and until when it can.
struct Blow {
    fault_id: u64,
    kind: Kind,
    latency: Duration,
    copies: u8,
    ends: Instant,
    life: watch::Receiver<()>,
}

impl Registry {
    fn is_armed_at(&self, point: FaultPoint) -> bool {
        self.points.load(Ordering::Relaxed) & bit(point) != 0
    }

    fn is_armed(&self) -> bool {
        self.points.load(Ordering::Relaxed) != 0 && self.with(|state| state.points() != 0)
    }

    fn concerns(&self, points: &[FaultPoint], subject: impl FnOnce() -> Subject) -> bool {
        if !points.iter().any(|point| self.is_armed_at(*point)) {
            return false;
        }
        let subject = subject();
        self.with(|state| state.faults.iter().any(|fault| points.iter().any(|point| fault.concerns(*point, &subject))))
    }

    async fn pass(&self, point: FaultPoint, subject: Subject) -> Result<Pass, Injected> {
        let Some(blow) = self.first_hit(point, &subject).await else { return Ok(Pass::Unharmed) };
        let Blow { fault_id, kind, .. } = blow;
        tracing::warn!(fault = fault_id, point = point.as_str(), kind = kind.as_str(), "injecting a fault");
        if let Some(sink) = self.sink.get() {
            sink(Hit { fault_id, point, kind, subject }).await;
        }
        // Disarmed while its hit was written down.
        if blow.life.has_changed().is_err() {
            return Ok(Pass::Unharmed);
        }
        blow.strike(point).await
    }

    /// Counts the pass with the faults it concerns, up to the first that hits it.
    async fn first_hit(&self, point: FaultPoint, subject: &Subject) -> Option<Blow> {
        let mut after = 0;
        loop {
            let candidate = self.with(|state| state.next_candidate(after, point, subject))?;
            after = candidate.armed.id;
            let number = match self.counter.get().filter(|_| candidate.armed.shared) {
                Some(count) => count(candidate.armed.clone()).await,
                None => None,
            };
            if let Some(blow) = self.with(|state| state.take(candidate, number)) {
                return Some(blow);
            }
        }
    }

    /// Looks at the faults that live, or changes them.
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.faults.retain(|fault| fault.lives(now));
        let seen = look(&mut state);
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

    fn insert(&mut self, fault: Fault) {
        let place = self.faults.partition_point(|other| other.armed.id < fault.armed.id);
        self.faults.insert(place, fault);
    }

    /// The first fault that the pass concerns, of those with a later id.
    fn next_candidate(&self, after: u64, point: FaultPoint, subject: &Subject) -> Option<Candidate> {
        let mut later = self.faults.iter().filter(|fault| fault.armed.id > after);
        let fault = later.find(|fault| fault.concerns(point, subject))?;
        Some(Candidate { armed: fault.armed.clone(), life: fault.life.subscribe() })
    }

    /// Counts the pass with this fault, if that lives still; what happens if it is hit.
    fn take(&mut self, candidate: Candidate, number: Option<u64>) -> Option<Blow> {
        let Candidate { armed: Armed { id: fault_id, .. }, life } = candidate;
        let fault = self.faults.iter_mut().find(|fault| fault.armed.id == fault_id)?;
        // Others may have taken the last pass meanwhile; who has a number has its own.
        if (number.is_none() && fault.armed.is_done()) || !fault.takes(number) {
            return None;
        }
        let spec = &fault.armed.spec;
        *self.hits.entry((spec.point, spec.kind)).or_default() += 1;
        Some(Blow {
            fault_id,
            kind: spec.kind,
            latency: Duration::from_millis(spec.latency_ms.unwrap_or_default()),
            copies: spec.copies.unwrap_or_default(),
            ends: fault.ends,
            life,
        })
    }
}

impl Blow {
    async fn strike(self, point: FaultPoint) -> Result<Pass, Injected> {
        match self.kind {
            Kind::Error => return Err(Injected { point, fault_id: self.fault_id }),
            Kind::Latency => held(self.life, self.ends.min(Instant::now() + self.latency)).await,
            Kind::Hang => held(self.life, self.ends).await,
            Kind::Crash => std::process::abort(),
            Kind::Duplicate => return Ok(Pass::Duplicate { copies: self.copies }),
            Kind::Drop => return Ok(Pass::Drop),
            Kind::Decline => return Ok(Pass::Decline),
        }
        Ok(Pass::Unharmed)
    }
}

/// Returns at this time, or once the fault is disarmed.
async fn held(mut life: watch::Receiver<()>, until: Instant) {
    // Nothing is ever sent: this resolves when the sender is dropped with its fault.
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
