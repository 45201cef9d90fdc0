//! The life of a saga as a pure function: which transition is legal in which state, and what it
//! makes of it. The services run this very code under the saga's row lock; the database's trigger
//! enforces the same table once more.

use std::{fmt, str::FromStr};

use crate::Service;

/// Where a saga stands. `COMPLETED` and `COMPENSATED` are final (but a customer's cancel reopens a
/// completed saga); `FAILED` waits for an operator, or for the receipts that are still due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    Started,
    InProgress,
    Completed,
    TimedOut,
    Compensating,
    Compensated,
    Failed,
}

impl Status {
    pub const ALL: [Status; 7] = [
        Status::Started,
        Status::InProgress,
        Status::Completed,
        Status::TimedOut,
        Status::Compensating,
        Status::Compensated,
        Status::Failed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Started => "STARTED",
            Status::InProgress => "IN_PROGRESS",
            Status::Completed => "COMPLETED",
            Status::TimedOut => "TIMED_OUT",
            Status::Compensating => "COMPENSATING",
            Status::Compensated => "COMPENSATED",
            Status::Failed => "FAILED",
        }
    }

    /// Still on the way forward: a forward step may be applied.
    pub fn moves_forward(self) -> bool {
        matches!(self, Status::Started | Status::InProgress)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no status.
#[derive(Debug, thiserror::Error)]
#[error("unknown saga status {0:?}")]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Status::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

/// What a step did, as the journal tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    Completed,
    /// A business refusal.
    Failed,
    Compensated,
    /// Came too late; changed nothing.
    Skipped,
}

impl StepStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            StepStatus::Completed => "COMPLETED",
            StepStatus::Failed => "FAILED",
            StepStatus::Compensated => "COMPENSATED",
            StepStatus::Skipped => "SKIPPED",
        }
    }
}

/// What a step asks of the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Nothing but the journal entry.
    Stay,
    /// One more forward step is done.
    Advance { step: u8 },
    /// The pivot is done.
    Complete { step: u8 },
    /// The deadline has passed.
    TimeOut,
    /// Undo what was done; each participant owes a receipt.
    Compensate { by_customer: bool },
    /// The receipts are overdue: ask the participants once more.
    DriveAgain,
    /// A participant has confirmed its undo.
    Receipt { from: Service },
    /// The compensation is stuck; an operator has to look.
    GiveUp,
    /// An operator drives the compensation of a stuck saga again.
    Resume,
    /// A step behind the pivot is done.
    Fulfil { step: u8, by: Service },
}

impl Transition {
    /// How often the compensation was driven again, once this has happened; a new start begins at none.
    pub fn attempts(self, before: i16) -> i16 {
        match self {
            Transition::Compensate { .. } | Transition::Resume => 0,
            Transition::DriveAgain => before.saturating_add(1),
            _ => before,
        }
    }
}

/// A transition that the saga's status does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{transition:?} is not legal while the saga is {from}")]
pub struct IllegalTransition {
    pub from: Status,
    pub transition: Transition,
}

/// The part of a saga that transitions depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SagaState {
    pub status: Status,
    pub current_step: u8,
    /// Participants whose receipt is missing. A set, so that a repeated receipt changes nothing.
    pub receipts_due: Vec<String>,
}

impl SagaState {
    pub fn started() -> Self {
        SagaState { status: Status::Started, current_step: 0, receipts_due: Vec::new() }
    }

    /// What `SagaDefinition::apply` makes of the state. `due` are those who owe something then: a receipt when the saga begins to compensate, a
    /// step behind the pivot when it is completed.
    pub fn apply(
        &self,
        transition: Transition,
        due: impl IntoIterator<Item = Service>,
    ) -> Result<SagaState, IllegalTransition> {
        use Status::{Compensated, Compensating, Completed, Failed, InProgress, Started, TimedOut};
        let mut next = self.clone();
        match (transition, self.status) {
            (Transition::Stay, _) => {}
            (Transition::Advance { step }, Started | InProgress) => {
                next.status = InProgress;
                next.current_step = self.current_step.max(step);
            }
            (Transition::Complete { step }, InProgress) => {
                next.status = Completed;
                next.current_step = step;
                next.receipts_due = names(due);
            }
            (Transition::Fulfil { step, by }, Completed) => {
                next.current_step = self.current_step.max(step);
                next.receipts_due.retain(|due| due != by.0);
            }
            (Transition::TimeOut, Started | InProgress) => next.status = TimedOut,
            (Transition::Compensate { .. }, Started | InProgress | TimedOut)
            | (Transition::Compensate { by_customer: true }, Completed) => {
                next.status = Compensating;
                next.receipts_due = names(due);
            }
            // Also when nobody expected it any more.
            (Transition::Receipt { from }, Compensating | Failed) => {
                next.receipts_due.retain(|due| due != from.0);
                if next.receipts_due.is_empty() {
                    next.status = Compensated;
                }
            }
            (Transition::DriveAgain, Compensating) => {}
            // A participant answers a repeated cancellation again.
            (Transition::Receipt { .. }, Compensated) => {}
            (Transition::GiveUp, Compensating) => next.status = Failed,
            (Transition::Resume, Failed | Compensating) => next.status = Compensating,
            (transition, from) => return Err(IllegalTransition { from, transition }),
        }
        Ok(next)
    }
}

fn names(services: impl IntoIterator<Item = Service>) -> Vec<String> {
    services.into_iter().map(|service| service.0.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DANCERS: [Service; 2] = [Service("inventory"), Service("payment")];

    fn after(transitions: &[Transition]) -> Result<SagaState, IllegalTransition> {
        transitions.iter().try_fold(SagaState::started(), |state, t| state.apply(*t, DANCERS))
    }

    #[test]
    fn the_happy_path_completes() {
        let end = after(&[
            Transition::Advance { step: 1 },
            Transition::Advance { step: 2 },
            Transition::Complete { step: 3 },
        ]);
        assert_eq!(end.map(|s| (s.status, s.current_step)), Ok((Status::Completed, 3)));
    }

    #[test]
    fn only_the_last_receipt_compensates() {
        let cancelled = [Transition::TimeOut, Transition::Compensate { by_customer: false }];
        let state = after(&cancelled).expect("legal");
        let one = state.apply(Transition::Receipt { from: DANCERS[0] }, DANCERS).expect("legal");
        assert_eq!(one.status, Status::Compensating);
        let again = one.apply(Transition::Receipt { from: DANCERS[0] }, DANCERS).expect("legal");
        assert_eq!(again, one, "a repeated receipt changes nothing");
        let two = one.apply(Transition::Receipt { from: DANCERS[1] }, DANCERS).expect("legal");
        assert_eq!(two.status, Status::Compensated);
    }

    #[test]
    fn a_completed_saga_is_reopened_by_its_customer_only() {
        let done = [Transition::Advance { step: 1 }, Transition::Complete { step: 3 }];
        let state = after(&done).expect("legal");
        assert!(state.apply(Transition::Compensate { by_customer: false }, DANCERS).is_err());
        assert!(state.apply(Transition::Compensate { by_customer: true }, DANCERS).is_ok());
        assert!(state.apply(Transition::TimeOut, DANCERS).is_err());
    }

    #[test]
    fn a_completed_saga_owes_what_is_behind_its_pivot_until_it_is_done() {
        let advanced = after(&[Transition::Advance { step: 1 }]).expect("legal");
        let owing = advanced.apply(Transition::Complete { step: 2 }, DANCERS).expect("legal");
        assert_eq!((owing.status, owing.receipts_due.len()), (Status::Completed, 2));
        let shipping = Transition::Fulfil { step: 3, by: DANCERS[0] };
        let shipped = owing.apply(shipping, []).expect("legal");
        assert_eq!((shipped.status, shipped.current_step), (Status::Completed, 3));
        assert_eq!(shipped.receipts_due, [DANCERS[1].0]);
        assert_eq!(shipped.apply(shipping, []), Ok(shipped.clone()));
        assert!(advanced.apply(shipping, []).is_err(), "not before the pivot");
    }

    #[test]
    fn a_timeout_and_a_success_exclude_each_other() {
        let timed_out = after(&[Transition::Advance { step: 2 }, Transition::TimeOut]).expect("legal");
        assert!(timed_out.apply(Transition::Complete { step: 3 }, DANCERS).is_err());
        assert!(timed_out.apply(Transition::Advance { step: 2 }, DANCERS).is_err());
    }

    #[test]
    fn the_last_receipt_ends_a_failed_saga_and_until_then_an_operator_may_resume_it() {
        let stuck = after(&[Transition::Compensate { by_customer: false }, Transition::GiveUp]).expect("legal");
        let one = stuck.apply(Transition::Receipt { from: DANCERS[1] }, DANCERS).expect("legal");
        assert_eq!((one.status, one.receipts_due.len()), (Status::Failed, 1));
        assert_eq!(one.apply(Transition::Resume, DANCERS).map(|s| s.status), Ok(Status::Compensating));
        let two = one.apply(Transition::Receipt { from: DANCERS[0] }, DANCERS).expect("legal");
        assert_eq!(two.status, Status::Compensated);
        assert!(two.apply(Transition::Resume, DANCERS).is_err());
    }

    #[test]
    fn every_status_has_a_name_that_reads_back() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse::<Status>().ok(), Some(status));
        }
    }
}
