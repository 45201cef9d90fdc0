//! The faults armed in this process. A pass costs one atomic load while no fault is armed at its point. Expired faults are
//! removed at each access.

mod passes;

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use self::passes::{Registry, State};
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

/// Records hits.
pub type Sink = Arc<dyn Fn(Hit) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Numbers the passes of a shared fault from 1: no two passes get the same number. `None` on failure.
pub type Counter = Arc<dyn Fn(Armed) -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync>;

/// The faults armed in this process. Cheap to clone; clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    registry: Option<Arc<Registry>>,
}

impl Faults {
    /// A registry that never has faults.
    pub const fn none() -> Self {
        Faults { registry: None }
    }

    /// A registry without faults so far, for [`Faults::arm`].
    pub fn armable() -> Self {
        Faults::armable_without(Vec::new())
    }

    /// Like [`Faults::armable`], with these mechanisms switched off.
    pub fn armable_without(guards: Vec<Guard>) -> Self {
        Faults { registry: Some(Arc::new(Registry { guards, ..Registry::default() })) }
    }

    /// Whether faults can be armed in this process.
    pub fn is_armable(&self) -> bool {
        self.registry.is_some()
    }

    /// Whether a mechanism is switched off, to demonstrate its purpose.
    pub fn without(&self, guard: Guard) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.guards.contains(&guard))
    }

    /// Whether any fault may still hit a pass. Costs one atomic load while there is none.
    pub fn is_armed(&self) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.is_armed())
    }

    /// Whether a fault at one of these points may hit a pass with this subject.
    pub fn concerns(&self, points: &[FaultPoint], subject: impl FnOnce() -> Subject) -> bool {
        self.registry.as_ref().is_some_and(|registry| registry.concerns(points, subject))
    }

    /// Passes a point. The first fault by id that concerns this pass and hits it acts: latency, hang and crash happen here,
    /// an error is the `Err`, the caller carries out the other kinds. A latency or a hang ends early when its fault is
    /// disarmed or expires. `subject` is called only when a fault is armed at this point.
    pub async fn at(&self, point: FaultPoint, subject: impl FnOnce() -> Subject) -> Result<Pass, Injected> {
        match &self.registry {
            // Boxed, so that the futures of callers stay small.
            Some(registry) if registry.is_armed_at(point) => Box::pin(registry.pass(point, subject())).await,
            _ => Ok(Pass::Unharmed),
        }
    }

    /// Arms a fault in this process, from now until it expires, is disarmed, or has hit its last pass.
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

    /// Creates a fault for all replicas of the service without arming it; each replica arms it by [`Faults::hold`].
    pub fn draft(&self, spec: FaultSpec, armed_by: &str) -> Result<Armed, Refused> {
        self.registry.as_ref().ok_or(Refused::NotArmable)?;
        spec.validate()?;
        Ok(Armed { shared: true, ..Armed::new(new_shared_id(), spec, armed_by) })
    }

    /// Arms a drafted fault in this replica for this duration, unless it was armed here before. Returns whether it is armed.
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

    /// Updates the number of passes of a shared fault in all replicas.
    pub fn seen(&self, id: u64, passes: u64) {
        self.with(|state| {
            for fault in state.faults.iter_mut().filter(|fault| fault.armed.id == id) {
                fault.armed.passes = fault.armed.passes.max(passes);
            }
        });
    }

    /// Sets the counter that numbers the passes of shared faults over all replicas. A pass waits for it, so it must have a
    /// timeout; without a number this replica counts alone. Only the first counter is used.
    pub fn count_with(&self, counter: Counter) {
        if let Some(registry) = &self.registry {
            let _ = registry.counter.set(counter);
        }
    }

    /// The active faults, by id, including one that has hit its last pass while it still delays it.
    pub fn armed(&self) -> Vec<Armed> {
        self.with(|state| state.faults.iter().map(|fault| fault.armed.clone()).collect())
    }

    /// Disarms this fault. Returns whether it was active.
    pub fn disarm(&self, id: u64) -> bool {
        self.disarm_those(|fault| fault.armed.id == id) > 0
    }

    /// Disarms all faults. Returns how many were active.
    pub fn disarm_all(&self) -> usize {
        self.disarm_those(|_| true)
    }

    /// The number of hits by point and kind since the process started.
    pub fn hits(&self) -> BTreeMap<(FaultPoint, Kind), u64> {
        self.with(|state| state.hits.clone())
    }

    /// Sets the sink that records every hit before the fault acts, also before a crash. The pass waits for it, so it must have
    /// a timeout. Only the first sink is used.
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

    fn with<T: Default>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        self.registry.as_ref().map(|registry| registry.with(access)).unwrap_or_default()
    }
}
