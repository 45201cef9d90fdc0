//! The table of operations: everything that a person or an agent can do to a running suite, beside reading it. Each row is one
//! administration route of the services, so nothing can be done here that an operator could not do by REST, and each call leaves
//! the route's own record of who did what, and why.

mod call;
mod confirm;

use contracts::ORDER;
use saga::Service;

pub(crate) use call::{Arguments, Refusal, Who, perform};
pub(crate) use confirm::Confirmations;

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    /// Verb and object: `replay_dead_letter`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What it does, in one sentence.
    pub(crate) about: &'static str,
    pub(crate) role: Role,
    pub(crate) verb: Verb,
    pub(crate) at: At,
    /// The route below `/api/`; `{id}` stands for an argument.
    pub(crate) path: &'static str,
    /// What it wants besides service, id and reason.
    pub(crate) fields: &'static [Field],
    /// It cannot be undone: it is confirmed after what it concerns was shown.
    pub(crate) destroys: bool,
}

/// The method of an operation's route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Post,
    Delete,
}

/// Who may call an operation; each role may do what the ones before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Operator,
    Admin,
}

/// The service that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// An argument names it.
    Any,
    Only(Service),
}

/// An argument that goes into the request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    /// Left out when it is empty.
    Number,
}

impl Operation {
    const fn new(name: &'static str, title: &'static str, role: Role, path: &'static str, about: &'static str) -> Self {
        let at = At::Any;
        Operation { name, title, about, role, verb: Verb::Post, at, path, fields: &[], destroys: false }
    }

    const fn at(mut self, service: Service) -> Self {
        self.at = At::Only(service);
        self
    }

    const fn with(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    /// Deletes: it cannot be undone.
    const fn deletes(self) -> Self {
        Operation { verb: Verb::Delete, destroys: true, ..self }
    }

    /// The name of the argument in its path: `id`, `step`.
    pub(crate) fn key(&self) -> Option<&'static str> {
        Some(self.path.split_once('{')?.1.split_once('}')?.0)
    }
}

const fn field(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
    Field { name, about, kind }
}

/// All operations, by what they concern.
pub(crate) static OPERATIONS: &[Operation] = {
    use Role::{Admin, Operator};
    &[
        Operation::new(
            "resume_saga",
            "Resume the saga",
            Operator,
            "admin/sagas/{id}/resume",
            "Retries the compensation of a FAILED or COMPENSATING saga.",
        )
        .at(ORDER),
        Operation::new(
            "replay_dead_letter",
            "Replay",
            Operator,
            "admin/dlq/{id}/replay",
            "Runs the failed step on the event again, now.",
        ),
        Operation::new(
            "discard_dead_letter",
            "Discard",
            Admin,
            "admin/dlq/{id}",
            "Discards the dead letter: the step will never be taken for this event.",
        )
        .deletes(),
        Operation::new(
            "requeue_outbox_entry",
            "Requeue",
            Operator,
            "admin/outbox/{event_id}/requeue",
            "Lets the relay publish a parked event again.",
        ),
        Operation::new(
            "discard_outbox_entry",
            "Discard",
            Admin,
            "admin/outbox/{event_id}",
            "Discards a parked event: it will never be published, and its aggregate's later events will.",
        )
        .deletes(),
        Operation::new(
            "pause_consumer",
            "Pause",
            Operator,
            "admin/consumers/{step}/pause",
            "Stops the step in all replicas; its events wait in the stream.",
        ),
        Operation::new(
            "resume_consumer",
            "Resume",
            Operator,
            "admin/consumers/{step}/resume",
            "Lets a paused step go on.",
        ),
        Operation::new(
            "pause_relay",
            "Pause",
            Operator,
            "admin/relay/pause",
            "Stops publishing; events wait in the service's outbox.",
        ),
        Operation::new("resume_relay", "Resume", Operator, "admin/relay/resume", "Lets a paused relay publish again."),
        Operation::new(
            "reset_breaker",
            "Reset",
            Operator,
            "admin/breakers/{step}/reset",
            "Closes the step's circuit breaker in all replicas.",
        ),
        Operation::new(
            "arm_fault",
            "Arm a fault",
            Admin,
            "admin/faults",
            "Lets something go wrong at a fault point, in all replicas of the service, until it expires.",
        )
        .with(&[
            field("point", FieldKind::Text, "Where: gateway_call, in_step, before_commit, bus_publish, ..."),
            field("kind", FieldKind::Text, "What: error, latency, hang, crash, duplicate, drop, decline"),
            field("latency_ms", FieldKind::Number, "How long, for the kind latency, in milliseconds"),
            field("first", FieldKind::Number, "How many passes it hits; all of them if left out"),
            field("expires_in_seconds", FieldKind::Number, "How long it lasts at most: 1 to 3600, 60 if left out"),
        ]),
        Operation {
            verb: Verb::Delete,
            ..Operation::new("disarm_fault", "Disarm", Operator, "admin/faults/{id}", "Ends a fault in all replicas.")
        },
        Operation::new(
            "rebuild_catalogue",
            "Rebuild the catalogue",
            Operator,
            "admin/catalogue/rebuild",
            "Makes order's view of the products equal to inventory's.",
        )
        .at(ORDER),
    ]
};

/// The operation of this name.
pub(crate) fn operation(name: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.name == name)
}
