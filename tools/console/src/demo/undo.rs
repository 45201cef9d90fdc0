//! The undo list of a scenario. Every fault is noted before it is injected, and undone in reverse order however the scenario
//! ends.

use std::fmt;

use super::processes::Processes;
use crate::suite::{DeadLetter, Service, Suite, SuiteError};

/// How to undo one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    /// A verb of [`Processes`] for one process.
    Process(&'static str, String),
    Disarm(Service),
    DisarmGateway,
    ResumeConsumer(Service, String),
    ResolveDeadLetters(Service),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::Process(verb, process) => write!(f, "{verb} {process}"),
            Undo::Disarm(service) => write!(f, "disarm the faults of {}", service.0),
            Undo::DisarmGateway => write!(f, "disarm the faults of the gateway"),
            Undo::ResolveDeadLetters(service) => write!(f, "resolve the dead letters of {}", service.0),
            Undo::ResumeConsumer(service, step) => write!(f, "resume the consumer of {step} in {}", service.0),
        }
    }
}

impl Undo {
    /// Idempotent.
    pub(super) async fn perform(&self, suite: &Suite, processes: &Processes) -> anyhow::Result<()> {
        match self {
            Undo::Process(verb, process) => processes.run(verb, process).await.map(drop),
            Undo::Disarm(service) => Ok(suite.disarm(*service).await?),
            Undo::DisarmGateway => Ok(suite.disarm_gateway().await?),
            // The preflight has found none, so all of them are the scenario's.
            Undo::ResolveDeadLetters(service) => Ok(resolve_dead_letters(suite, *service, |_| true).await?),
            Undo::ResumeConsumer(service, step) => Ok(suite.resume_consumer(*service, step).await?),
        }
    }
}

/// Replays these pending dead letters, and discards those for which that does not help.
pub(crate) async fn resolve_dead_letters(
    suite: &Suite,
    service: Service,
    concerned: impl Fn(&DeadLetter) -> bool,
) -> Result<(), SuiteError> {
    const REASON: &str = "left by a scenario or a drill that did not complete";
    for letter in suite.pending_dead_letters(service).await?.into_iter().filter(concerned) {
        // It may have no replay left.
        let replayed = suite.replay(service, letter.id, REASON).await;
        if !replayed.is_ok_and(|letter| letter.status == "RESOLVED") {
            suite.discard(service, letter.id, REASON).await?;
        }
    }
    Ok(())
}

/// What is still to be undone.
#[derive(Debug, Default)]
pub(super) struct Undos(Vec<Undo>);

impl Undos {
    /// Notes a fault that is about to be injected.
    pub(super) fn note(&mut self, undo: Undo) {
        if !self.0.contains(&undo) {
            self.0.push(undo);
        }
    }

    pub(super) fn notes(&self, undo: &Undo) -> bool {
        self.0.contains(undo)
    }

    /// It has been undone already.
    pub(super) fn done(&mut self, undo: &Undo) {
        self.0.retain(|noted| noted != undo);
    }

    /// Removes and returns all of them, the last one first.
    pub(super) fn take(&mut self) -> Vec<Undo> {
        let mut noted = std::mem::take(&mut self.0);
        noted.reverse();
        noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fault_is_undone_first_and_once() {
        let mut undos = Undos::default();
        let [restart, thaw] = ["restart", "thaw"].map(|verb| Undo::Process(verb, "order".to_owned()));
        undos.note(restart.clone());
        undos.note(Undo::DisarmGateway);
        undos.note(restart.clone());
        undos.note(thaw.clone());
        undos.done(&Undo::DisarmGateway);
        assert_eq!(undos.take(), [thaw, restart]);
        assert_eq!(undos.take(), []);
    }
}
