//! What has to be taken back. Everything that a scenario breaks is noted before it is broken, and taken back in reverse
//! order however the scenario ends.

use std::fmt;

use super::processes::Processes;
use crate::suite::{Service, Suite, SuiteError};

/// How one thing is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    /// It was stopped, or is going to crash.
    Start(String),
    /// It was frozen.
    Thaw(String),
    /// A second replica.
    Stop(String),
    /// It was started with other settings than usual.
    Restart(String),
    Disarm(Service),
    DisarmGateway,
    ResumeConsumer(Service, String),
    SettleDeadLetters(Service),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::Start(process) => write!(f, "start {process}"),
            Undo::Thaw(process) => write!(f, "thaw {process}"),
            Undo::Stop(process) => write!(f, "stop {process}"),
            Undo::Restart(process) => write!(f, "restart {process} with its usual settings"),
            Undo::Disarm(service) => write!(f, "disarm the faults of {}", service.0),
            Undo::DisarmGateway => write!(f, "let the gateway work again"),
            Undo::SettleDeadLetters(service) => write!(f, "leave no dead letter of {}", service.0),
            Undo::ResumeConsumer(service, step) => write!(f, "let {} consume for {step} again", service.0),
        }
    }
}

impl Undo {
    /// Doing it once too often does no harm.
    pub(super) async fn perform(&self, suite: &Suite, processes: &Processes) -> anyhow::Result<()> {
        match self {
            Undo::Start(process) => processes.run("start", process).await.map(drop),
            Undo::Thaw(process) => processes.run("thaw", process).await.map(drop),
            Undo::Stop(process) => processes.run("stop", process).await.map(drop),
            Undo::Restart(process) => processes.run("restart", process).await.map(drop),
            Undo::Disarm(service) => Ok(suite.disarm(*service).await?),
            Undo::DisarmGateway => Ok(suite.disarm_gateway().await?),
            Undo::SettleDeadLetters(service) => Ok(settle_dead_letters(suite, *service).await?),
            Undo::ResumeConsumer(service, step) => Ok(suite.resume_consumer(*service, step).await?),
        }
    }
}

/// Before the scenario there were none, so all that wait are its own.
async fn settle_dead_letters(suite: &Suite, service: Service) -> Result<(), SuiteError> {
    const REASON: &str = "left by a scenario that did not come to its end";
    for letter in suite.pending_dead_letters(service).await? {
        // It may have been replayed too often to be replayed again.
        let replayed = suite.replay(service, letter.id, REASON).await;
        if !replayed.is_ok_and(|letter| letter.status == "RESOLVED") {
            suite.discard(service, letter.id, REASON).await?;
        }
    }
    Ok(())
}

/// What is still to be taken back.
#[derive(Debug, Default)]
pub(super) struct Undos(Vec<Undo>);

impl Undos {
    /// Notes what is about to be broken.
    pub(super) fn note(&mut self, undo: Undo) {
        if !self.0.contains(&undo) {
            self.0.push(undo);
        }
    }

    pub(super) fn notes(&self, undo: &Undo) -> bool {
        self.0.contains(undo)
    }

    /// Whether a process was stopped, or is going to crash.
    pub(super) fn notes_start_of(&self, process: &str) -> bool {
        self.0.iter().any(|noted| matches!(noted, Undo::Start(name) if name == process))
    }

    /// It has been taken back already.
    pub(super) fn done(&mut self, undo: &Undo) {
        self.0.retain(|noted| noted != undo);
    }

    /// All of them, last one first; none is left.
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
    fn what_was_broken_last_is_taken_back_first_and_once() {
        let mut undos = Undos::default();
        let (restart, thaw) = (Undo::Restart("order".to_owned()), Undo::Thaw("order".to_owned()));
        undos.note(restart.clone());
        undos.note(Undo::DisarmGateway);
        undos.note(restart.clone());
        undos.note(thaw.clone());
        undos.done(&Undo::DisarmGateway);
        assert_eq!(undos.take(), [thaw, restart]);
        assert_eq!(undos.take(), []);
    }
}
