//! What a coordinator does, as pure functions of a saga's state: the next step to command, and the transitions that an answer
//! makes. Everything that a replica needs to go on is in the state, so any replica can.

use saga::{Kind, SagaDefinition, SagaState, Service, Status, Step, StepStatus, Transition, Trigger};

/// An orchestrated saga, with the steps that its coordinator takes itself.
#[derive(Debug, Clone, Copy)]
pub struct Orchestration {
    pub definition: &'static SagaDefinition,
    /// Ends the forward sequence, and starts the compensation.
    cancel: &'static Step,
    detect_timeout: &'static Step,
    drive_compensation: &'static Step,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// Command this step, and await its answer.
    Command(&'static Step),
    /// The saga's deadline has passed.
    TimeOut,
    /// The confirmations of the compensation are overdue: count an attempt, or give up.
    Retry,
    /// Nothing: the saga has ended, or waits for an operator.
    Rest,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    Done,
    /// For a business reason.
    Refused(String),
    /// None until the step's limit has passed: the step may be done, or not.
    None(String),
}

/// One entry of the journal, with the transition that it makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub step: &'static Step,
    pub status: StepStatus,
    pub transition: Transition,
    pub reason: Option<String>,
}

/// What the coordinating service does with its own rows, in the transaction of the transitions.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Nothing,
    /// The pivot: the business transaction is confirmed.
    Confirm,
    /// It is cancelled, because of this step's failure; `refused` for a business reason.
    Cancel {
        failed: &'static Step,
        refused: bool,
        reason: String,
    },
}

/// The transitions of one transaction, in their order; none when the answer comes too late.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub entries: Vec<Entry>,
    pub effect: Effect,
}

impl Turn {
    pub(crate) const NOTHING: Turn = Turn { entries: Vec::new(), effect: Effect::Nothing };
}

impl Orchestration {
    /// None when the definition has no step that cancels on command, detects the timeout, or drives the compensation.
    pub fn of(definition: &'static SagaDefinition) -> Option<Self> {
        let find = |on: Trigger, kind: Kind| definition.steps.iter().copied().find(|s| s.on == on && s.kind == kind);
        Some(Orchestration {
            definition,
            cancel: find(Trigger::Command, Kind::Cancellation)?,
            detect_timeout: find(Trigger::Deadline, Kind::Retriable)?,
            drive_compensation: find(Trigger::Deadline, Kind::Cancellation)?,
        })
    }

    /// `is_due`: the saga's deadline has passed, or that of its compensation.
    pub fn next(&self, state: &SagaState, is_due: bool) -> Next {
        let command = |step: Option<&'static Step>| step.map_or(Next::Rest, Next::Command);
        match state.status {
            Status::Started | Status::InProgress if is_due => Next::TimeOut,
            Status::Started | Status::InProgress => command(self.forward(state.current_step + 1)),
            Status::Compensating if is_due => Next::Retry,
            Status::Compensating => command(self.undo(state)),
            Status::Completed | Status::TimedOut | Status::Compensated | Status::Failed => Next::Rest,
        }
    }

    /// The transitions that the answer to this command makes in this state, which may have changed since the command.
    pub fn answered(&self, state: &SagaState, step: &'static Step, reply: &Reply) -> Turn {
        match step.kind {
            Kind::Compensation => self.undone(state, step, reply),
            _ if !state.status.moves_forward() || state.current_step + 1 != step.number => Turn::NOTHING,
            _ => match reply {
                Reply::Done => self.advanced(step),
                Reply::Refused(reason) => self.failed(step, true, reason),
                Reply::None(reason) => self.failed(step, false, reason),
            },
        }
    }

    /// The deadline has passed.
    pub fn timed_out(&self, state: &SagaState) -> Turn {
        if !state.status.moves_forward() {
            return Turn::NOTHING;
        }
        let reason = format!("no end by the deadline, after step {}", state.current_step);
        let entry = Entry {
            step: self.detect_timeout,
            status: StepStatus::Failed,
            transition: Transition::TimeOut,
            reason: Some(reason.clone()),
        };
        self.cancelled(entry, false, reason)
    }

    /// The confirmations are overdue after so many attempts.
    pub fn overdue(&self, state: &SagaState, attempts: u16) -> Turn {
        if state.status != Status::Compensating {
            return Turn::NOTHING;
        }
        let (status, transition, reason) = match attempts < self.definition.compensation.max_attempts {
            true => {
                let reason = format!("the confirmations are overdue, attempt {}", attempts + 1);
                (StepStatus::Completed, Transition::RetryCompensation, reason)
            }
            false => (StepStatus::Failed, Transition::GiveUp, format!("no confirmations after {attempts} attempts")),
        };
        let entry = Entry { step: self.drive_compensation, status, transition, reason: Some(reason) };
        Turn { entries: vec![entry], effect: Effect::Nothing }
    }

    /// An operator has the compensation go on.
    pub fn resumed(&self, why: String) -> Entry {
        let (step, status) = (self.drive_compensation, StepStatus::Completed);
        Entry { step, status, transition: Transition::Resume, reason: Some(why) }
    }

    /// The step under whose name transitions are stored; each entry names its own.
    pub(crate) fn as_step(&self) -> &'static Step {
        self.cancel
    }

    fn forward(&self, number: u8) -> Option<&'static Step> {
        let is_forward = |kind: Kind| matches!(kind, Kind::Compensatable { .. } | Kind::Pivot);
        self.definition.steps.iter().copied().find(|s| s.number == number && is_forward(s.kind))
    }

    /// Steps are undone in reverse.
    fn undo(&self, state: &SagaState) -> Option<&'static Step> {
        let owes = |service: Service| state.receipts_due.iter().any(|due| due == service.0);
        let owed = |s: &&'static Step| s.kind == Kind::Compensation && s.service.is_some_and(owes);
        self.definition.steps.iter().copied().filter(owed).max_by_key(|step| step.number)
    }

    /// The pivot needs no command: its effect is the coordinator's own, in the same transaction.
    fn advanced(&self, step: &'static Step) -> Turn {
        let done =
            |step: &'static Step, transition| Entry { step, status: StepStatus::Completed, transition, reason: None };
        let mut entries = vec![done(step, Transition::Advance { step: step.number })];
        let pivot = self.forward(step.number + 1).filter(|next| next.kind == Kind::Pivot);
        entries.extend(pivot.map(|pivot| done(pivot, Transition::Complete { step: pivot.number })));
        Turn { entries, effect: if pivot.is_some() { Effect::Confirm } else { Effect::Nothing } }
    }

    fn failed(&self, step: &'static Step, refused: bool, reason: &str) -> Turn {
        let reason = reason.to_owned();
        let entry =
            Entry { step, status: StepStatus::Failed, transition: Transition::Stay, reason: Some(reason.clone()) };
        self.cancelled(entry, refused, reason)
    }

    fn cancelled(&self, first: Entry, refused: bool, reason: String) -> Turn {
        let cancel = Entry {
            step: self.cancel,
            status: StepStatus::Completed,
            transition: Transition::Compensate { by_customer: false },
            reason: Some(reason.clone()),
        };
        let effect = Effect::Cancel { failed: first.step, refused, reason };
        Turn { entries: vec![first, cancel], effect }
    }

    fn undone(&self, state: &SagaState, step: &'static Step, reply: &Reply) -> Turn {
        let Some(from) = step.service else { return Turn::NOTHING };
        let owes = state.receipts_due.iter().any(|due| due == from.0);
        let compensates = matches!(state.status, Status::Compensating | Status::Failed);
        if !(owes && compensates && *reply == Reply::Done) {
            return Turn::NOTHING;
        }
        let entry =
            Entry { step, status: StepStatus::Compensated, transition: Transition::Receipt { from }, reason: None };
        Turn { entries: vec![entry], effect: Effect::Nothing }
    }
}
