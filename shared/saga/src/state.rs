//! The saga's state machine as a pure function: which transition is legal in which state, and the state after it.
//! The services run this code under the saga's row lock; the database's trigger enforces the same transitions.
//!
//! *Receipt*: a participant's confirmation that its steps are undone.

use std::{fmt, str::FromStr};

use serde::Deserialize;

use crate::Service;

/// The status of a saga. `COMPLETED` and `COMPENSATED` are final (but a customer's cancellation reopens a
/// completed saga); `FAILED` waits for an operator, or for the receipts that are still due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SagaStatus, description = "The status of a saga"))]
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

    /// Whether a forward step may still be applied.
    pub fn moves_forward(self) -> bool {
        matches!(self, Status::Started | Status::InProgress)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a status.
#[derive(Debug, thiserror::Error)]
#[error("unknown saga status {0:?}")]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Status::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

/// The outcome of a step, as the journal records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    Completed,
    /// A business refusal.
    Failed,
    Compensated,
    /// Too late; changed nothing.
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

/// The transition that a step makes in its saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Only the journal entry.
    Stay,
    /// A forward step is done.
    Advance { step: u8 },
    /// The pivot is done.
    Complete { step: u8 },
    /// The deadline has passed.
    TimeOut,
    /// All steps are to be undone; each participant owes a receipt.
    Compensate { by_customer: bool },
    /// The receipts are overdue: the cancellation is published again.
    RetryCompensation,
    /// A participant has confirmed that its steps are undone.
    Receipt { from: Service },
    /// The retries of the compensation are exhausted; operator action required.
    GiveUp,
    /// An operator retries the compensation.
    Resume,
    /// A step after the pivot is done.
    Fulfil { step: u8, by: Service },
}

impl Transition {
    /// The number of retries of the compensation after this transition; a new start resets it to zero.
    pub fn attempts(self, before: i16) -> i16 {
        match self {
            Transition::Compensate { .. } | Transition::Resume => 0,
            Transition::RetryCompensation => before.saturating_add(1),
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
    /// Whether a numbered step after the pivot is done: then the saga cannot be compensated any more.
    pub past_pivot: bool,
    /// Participants whose receipt is missing. A set, so a repeated receipt changes nothing.
    pub receipts_due: Vec<String>,
}

impl SagaState {
    pub fn started() -> Self {
        SagaState { status: Status::Started, current_step: 0, past_pivot: false, receipts_due: Vec::new() }
    }

    /// The state after the transition; [`SagaDefinition::apply`](crate::SagaDefinition::apply) calls it. `due` are the services
    /// that owe something afterwards: a receipt when the compensation starts, a step after the pivot when the saga is completed.
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
                next.past_pivot |= step > 0;
                next.receipts_due.retain(|due| due != by.0);
            }
            (Transition::TimeOut, Started | InProgress) => next.status = TimedOut,
            (Transition::Compensate { .. }, Started | InProgress | TimedOut)
            | (Transition::Compensate { by_customer: true }, Completed)
                if !self.past_pivot =>
            {
                next.status = Compensating;
                next.receipts_due = names(due);
            }
            // A failed saga accepts late receipts.
            (Transition::Receipt { from }, Compensating | Failed) => {
                next.receipts_due.retain(|due| due != from.0);
                if next.receipts_due.is_empty() {
                    next.status = Compensated;
                }
            }
            (Transition::RetryCompensation, Compensating) => {}
            // A participant sends its receipt again for a repeated cancellation.
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

    const PARTICIPANTS: [Service; 2] = [Service("inventory"), Service("payment")];

    fn after(transitions: &[Transition]) -> Result<SagaState, IllegalTransition> {
        transitions.iter().try_fold(SagaState::started(), |state, t| state.apply(*t, PARTICIPANTS))
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
        let one = state.apply(Transition::Receipt { from: PARTICIPANTS[0] }, PARTICIPANTS).expect("legal");
        assert_eq!(one.status, Status::Compensating);
        let again = one.apply(Transition::Receipt { from: PARTICIPANTS[0] }, PARTICIPANTS).expect("legal");
        assert_eq!(again, one, "a repeated receipt changes nothing");
        let two = one.apply(Transition::Receipt { from: PARTICIPANTS[1] }, PARTICIPANTS).expect("legal");
        assert_eq!(two.status, Status::Compensated);
    }

    #[test]
    fn a_completed_saga_is_reopened_by_its_customer_only() {
        let done = [Transition::Advance { step: 1 }, Transition::Complete { step: 3 }];
        let state = after(&done).expect("legal");
        assert!(state.apply(Transition::Compensate { by_customer: false }, PARTICIPANTS).is_err());
        assert!(state.apply(Transition::Compensate { by_customer: true }, PARTICIPANTS).is_ok());
        assert!(state.apply(Transition::TimeOut, PARTICIPANTS).is_err());
    }

    #[test]
    fn a_completed_saga_owes_the_steps_after_its_pivot() {
        let advanced = after(&[Transition::Advance { step: 1 }]).expect("legal");
        let owing = advanced.apply(Transition::Complete { step: 2 }, PARTICIPANTS).expect("legal");
        assert_eq!((owing.status, owing.receipts_due.len()), (Status::Completed, 2));
        let shipping = Transition::Fulfil { step: 3, by: PARTICIPANTS[0] };
        let shipped = owing.apply(shipping, []).expect("legal");
        assert_eq!((shipped.status, shipped.current_step), (Status::Completed, 3));
        assert_eq!(shipped.receipts_due, [PARTICIPANTS[1].0]);
        assert_eq!(shipped.apply(shipping, []), Ok(shipped.clone()));
        assert!(advanced.apply(shipping, []).is_err(), "not before the pivot");
    }

    #[test]
    fn a_timeout_and_a_success_exclude_each_other() {
        let timed_out = after(&[Transition::Advance { step: 2 }, Transition::TimeOut]).expect("legal");
        assert!(timed_out.apply(Transition::Complete { step: 3 }, PARTICIPANTS).is_err());
        assert!(timed_out.apply(Transition::Advance { step: 2 }, PARTICIPANTS).is_err());
    }

    #[test]
    fn a_failed_saga_can_be_resumed_until_the_last_receipt() {
        let stuck = after(&[Transition::Compensate { by_customer: false }, Transition::GiveUp]).expect("legal");
        let one = stuck.apply(Transition::Receipt { from: PARTICIPANTS[1] }, PARTICIPANTS).expect("legal");
        assert_eq!((one.status, one.receipts_due.len()), (Status::Failed, 1));
        assert_eq!(one.apply(Transition::Resume, PARTICIPANTS).map(|s| s.status), Ok(Status::Compensating));
        let two = one.apply(Transition::Receipt { from: PARTICIPANTS[0] }, PARTICIPANTS).expect("legal");
        assert_eq!(two.status, Status::Compensated);
        assert!(two.apply(Transition::Resume, PARTICIPANTS).is_err());
    }

    #[test]
    fn every_status_has_a_name_that_parses() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse::<Status>().ok(), Some(status));
            assert_eq!(serde_json::from_value::<Status>(status.as_str().into()).ok(), Some(status));
        }
    }
}
