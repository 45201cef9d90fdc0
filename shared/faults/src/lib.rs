//! Faults on purpose. A fault names a point, what happens there, and how many passes it spares and
//! takes. Nothing is armed unless somebody arms it, and business code never sees this crate.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Every place where a fault can be injected: the windows in which systems of this kind break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// The consumer holds a batch and has not begun its transaction.
    BeforeInboxClaim,
    /// Everything is written, nothing is committed.
    BeforeCommit,
    /// Committed; the relay has not been told.
    AfterCommitBeforePublish,
    /// The broker has acknowledged; the outbox rows have not been moved.
    AfterPublishBeforeMark,
    /// Committed; the broker has no acknowledgement of the delivery.
    AfterCommitBeforeAck,
}

impl FaultPoint {
    pub const ALL: [FaultPoint; 5] = [
        FaultPoint::BeforeInboxClaim,
        FaultPoint::BeforeCommit,
        FaultPoint::AfterCommitBeforePublish,
        FaultPoint::AfterPublishBeforeMark,
        FaultPoint::AfterCommitBeforeAck,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            FaultPoint::BeforeInboxClaim => "before_inbox_claim",
            FaultPoint::BeforeCommit => "before_commit",
            FaultPoint::AfterCommitBeforePublish => "after_commit_before_publish",
            FaultPoint::AfterPublishBeforeMark => "after_publish_before_mark",
            FaultPoint::AfterCommitBeforeAck => "after_commit_before_ack",
        }
    }
}

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation fails.
    Error,
    /// The operation takes this much longer.
    Latency(Duration),
    /// The process is gone, as after kill -9.
    Crash,
}

/// One armed fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub point: FaultPoint,
    pub kind: FaultKind,
    /// How many passes go unharmed first.
    pub skip: u32,
    /// How many passes are hit after that.
    pub times: u32,
}

/// The injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fault injected at {}", .0.as_str())]
pub struct Injected(pub FaultPoint);

/// The faults armed in this process. Cheap to clone; costs one branch while there are none.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    armed: Option<Arc<Mutex<Armed>>>,
}

#[derive(Debug, Default)]
struct Armed {
    faults: Vec<Fault>,
    hits: HashMap<FaultPoint, u32>,
}

impl Faults {
    /// No faults, now or ever.
    pub fn none() -> Self {
        Faults::default()
    }

    /// No faults yet, but [`Faults::arm`] works.
    pub fn armable() -> Self {
        Faults { armed: Some(Arc::default()) }
    }

    /// Arms a fault. Returns whether this process lets itself be harmed at all.
    pub fn arm(&self, fault: Fault) -> bool {
        match &self.armed {
            Some(armed) => {
                armed.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
                true
            }
            None => false,
        }
    }

    /// How often each point was hit.
    pub fn hits(&self) -> HashMap<FaultPoint, u32> {
        let armed = self.armed.as_ref().map(|armed| armed.lock().unwrap_or_else(PoisonError::into_inner));
        armed.map(|armed| armed.hits.clone()).unwrap_or_default()
    }

    /// Passes a point: does what the first fault armed for it says, if any.
    pub async fn pass(&self, point: FaultPoint) -> Result<(), Injected> {
        let Some(armed) = &self.armed else { return Ok(()) };
        let hit = take_hit(&mut armed.lock().unwrap_or_else(PoisonError::into_inner), point);
        let Some(kind) = hit else { return Ok(()) };
        tracing::warn!(point = point.as_str(), ?kind, "injecting a fault");
        match kind {
            FaultKind::Error => Err(Injected(point)),
            FaultKind::Latency(longer) => {
                tokio::time::sleep(longer).await;
                Ok(())
            }
            FaultKind::Crash => std::process::abort(),
        }
    }
}

/// Counts the pass and says what happens.
fn take_hit(armed: &mut Armed, point: FaultPoint) -> Option<FaultKind> {
    let index = armed.faults.iter().position(|f| f.point == point)?;
    let fault = armed.faults.get_mut(index)?;
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    let kind = fault.kind;
    fault.times = fault.times.saturating_sub(1);
    if fault.times == 0 {
        armed.faults.remove(index);
    }
    *armed.hits.entry(point).or_default() += 1;
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_PASS: Fault = Fault { point: FaultPoint::BeforeCommit, kind: FaultKind::Error, skip: 1, times: 1 };

    #[tokio::test]
    async fn a_fault_hits_the_pass_it_names_and_is_gone() {
        let faults = Faults::armable();
        assert!(faults.arm(SECOND_PASS));
        assert_eq!(faults.pass(FaultPoint::BeforeCommit).await, Ok(()));
        assert_eq!(faults.pass(FaultPoint::AfterCommitBeforeAck).await, Ok(()), "another point is not touched");
        assert_eq!(faults.pass(FaultPoint::BeforeCommit).await, Err(Injected(FaultPoint::BeforeCommit)));
        assert_eq!(faults.pass(FaultPoint::BeforeCommit).await, Ok(()));
    }

    #[tokio::test]
    async fn a_process_without_faults_cannot_be_harmed() {
        let faults = Faults::none();
        assert!(!faults.arm(SECOND_PASS));
        assert_eq!(faults.pass(FaultPoint::BeforeCommit).await, Ok(()));
    }
}
