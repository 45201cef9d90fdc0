//! The table of operations: everything that a person or an agent can do to a running suite, or ask its services. Each row is one
//! route of theirs, so nothing can be done here that an operator could not do by REST, and each action leaves the route's own
//! record of who did what, and why.

mod arguments;
mod call;
mod confirm;
mod field;

use contracts::{ORDER, PAYMENT};
use saga::Service;

pub(crate) use arguments::{Argument, arguments, arguments_of};
pub(crate) use call::{Arguments, IDEMPOTENCY_KEY, Refusal, Who, given, perform};
pub(crate) use confirm::Confirmations;
pub(crate) use field::{Field, FieldKind};

use field::{AGE, AGGREGATE, AT_MOST, CURSOR, EVENT_TYPE, FROZEN_SET, LIMIT, REFUSALS, SAGA, STEP, field};

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
    /// What it wants besides service, id and reason: parts of the body, or of the query.
    pub(crate) fields: &'static [Field],
    /// The body before the fields are set; where it has a reason, that is set as well.
    pub(crate) base: &'static str,
    /// It cannot be undone: it is confirmed after what it concerns was shown.
    pub(crate) destroys: bool,
}

/// The method of an operation's route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It reads, and needs no reason.
    Get,
    Post,
    Delete,
}

/// Who may call an operation; each role may do what the ones before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Role {
    /// Reads.
    Viewer,
    /// Mends and trades; what cannot be undone is confirmed.
    Operator,
    /// Also throws events away, and lets things go wrong.
    Admin,
}

/// The service that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// An argument names it.
    Any,
    Only(Service),
}

impl Operation {
    const fn new(name: &'static str, title: &'static str, role: Role, path: &'static str, about: &'static str) -> Self {
        let at = At::Any;
        Operation { name, title, about, role, verb: Verb::Post, at, path, fields: &[], base: "{}", destroys: false }
    }

    const fn at(mut self, service: Service) -> Self {
        self.at = At::Only(service);
        self
    }

    const fn with(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    const fn base(self, base: &'static str) -> Self {
        Operation { base, ..self }
    }

    /// It cannot be undone.
    const fn destroys(self) -> Self {
        Operation { destroys: true, ..self }
    }

    const fn deletes(self) -> Self {
        Operation { verb: Verb::Delete, ..self }
    }

    const fn reads(name: &'static str, path: &'static str, about: &'static str) -> Self {
        Operation { verb: Verb::Get, ..Operation::new(name, name, Role::Viewer, path, about) }
    }

    /// Whether it is refused without this one of its fields.
    pub(crate) fn needs(&self, field: &str) -> bool {
        match self.name {
            "place_order" => true,
            "arm_fault" => matches!(field, "point" | "kind"),
            "discard_dead_letters" | "discard_outbox_entries" => true,
            _ => false,
        }
    }

    /// Whether the caller's key makes a repeated call the same one.
    pub(crate) fn is_keyed(&self) -> bool {
        self.name == "place_order"
    }

    /// Whether a second call, with the same arguments, changes nothing more.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.verb == Verb::Delete
            || !matches!(self.name, "arm_fault" | "replay_dead_letter" | "replay_dead_letters" | "resume_saga")
    }

    pub(crate) fn acts(&self) -> bool {
        self.verb != Verb::Get
    }

    /// What can be done with the set that this one has frozen: to the same kind of entries.
    pub(crate) fn of_its_set(&self) -> impl Iterator<Item = &'static Operation> {
        let kind = self.path.rsplit_once('/').map_or(self.path, |(kind, _)| kind);
        OPERATIONS.iter().filter(move |next| next.fields.contains(&FROZEN_SET) && next.path.starts_with(kind))
    }

    /// The name of the argument in its path: `id`, `step`.
    pub(crate) fn key(&self) -> Option<&'static str> {
        Some(self.path.split_once('{')?.1.split_once('}')?.0)
    }
}

/// All operations: what reads, then what acts, by what they concern.
pub(crate) static OPERATIONS: &[Operation] = {
    use Role::{Admin, Operator};
    &[
        Operation::reads(
            "explain_order",
            "orders/{id}/explain",
            "What an order waits for, why, and what can be done about it.",
        )
        .at(ORDER),
        Operation::reads("inspect_saga", "sagas/{id}", "A saga with its state and its journal of steps.").at(ORDER),
        Operation::reads(
            "list_products",
            "products",
            "The products: in order's view for sale, in inventory with their stock.",
        )
        .with(&[LIMIT, CURSOR]),
        Operation::reads("list_payments", "payments", "Payments, newest first.").at(PAYMENT).with(&[
            field("order_id", FieldKind::Text, "Only the payment of this order"),
            LIMIT,
            CURSOR,
        ]),
        Operation::reads("list_dead_letters", "admin/dlq", "Events that a step could not process, newest first.").with(
            &[
                field("status", FieldKind::Text, "PENDING, REPLAYED, RESOLVED or DISCARDED"),
                field("saga_id", FieldKind::Text, "Only those of this saga"),
                LIMIT,
                CURSOR,
            ],
        ),
        Operation::reads(
            "inspect_dead_letter",
            "admin/dlq/{id}",
            "A dead letter with its event and what was done to it.",
        ),
        Operation::reads("list_outbox", "admin/outbox", "A service's events in its outbox, newest first.").with(&[
            field("state", FieldKind::Text, "PENDING, PARKED, PUBLISHED or DISCARDED"),
            LIMIT,
            CURSOR,
        ]),
        Operation::reads(
            "inspect_event",
            "admin/outbox/{event_id}",
            "An event with its body and its history: refused, requeued, published, by whom and why.",
        ),
        Operation::reads(
            "list_consumers",
            "admin/consumers",
            "A service's steps, and whether they are paused or pulling.",
        ),
        Operation::reads("inspect_relay", "admin/relay", "The relay that publishes a service's outbox."),
        Operation::reads("list_breakers", "admin/breakers", "A service's circuit breakers, and their last failures."),
        Operation::reads("list_faults", "admin/faults", "The faults that are armed in a service."),
        Operation::new(
            "place_order",
            "Place an order",
            Operator,
            "orders",
            "Places an order of one product; with the same key again it answers with the same order.",
        )
        .at(ORDER)
        .with(&[
            field("customer_id", FieldKind::Text, "The customer"),
            field("sku", FieldKind::Text, "The product").at("/lines/0/sku"),
            field("quantity", FieldKind::Number, "How many units").at("/lines/0/quantity"),
            field("payment_method", FieldKind::Text, "A card's token: tok_visa, or tok_declined to be refused"),
        ]),
        Operation::new(
            "cancel_order",
            "Cancel the order",
            Operator,
            "orders/{id}/cancel",
            "Cancels an order, also a confirmed one: stock is released, the payment refunded.",
        )
        .at(ORDER)
        .destroys(),
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
            "rehearse_replay",
            "Try dry",
            Operator,
            "admin/dlq/replay",
            "Says what replaying a saga's dead letters would do, and changes nothing.",
        )
        .with(&[SAGA])
        .base(r#"{"filter": {}, "dry_run": true}"#),
        Operation::new(
            "replay_dead_letters",
            "Replay many",
            Operator,
            "admin/dlq/replay",
            "Replays the pending dead letters of a step or a saga, in waves that grow until one fails.",
        )
        .with(&[
            STEP,
            SAGA,
            field("limit", FieldKind::Number, "How many at most"),
        ])
        .base(r#"{"filter": {}, "reason": ""}"#)
        .destroys(),
        Operation::new(
            "discard_dead_letter",
            "Discard",
            Admin,
            "admin/dlq/{id}",
            "Discards the dead letter: the step will never be taken for this event.",
        )
        .deletes()
        .destroys(),
        Operation::new(
            "rehearse_discard",
            "Select dead letters",
            Operator,
            "admin/dlq/discard",
            "Says which dead letters a discard of many would concern, changes none of them, and freezes the set.",
        )
        .with(&[STEP, SAGA, AT_MOST])
        .base(r#"{"filter": {}, "dry_run": true, "reason": ""}"#),
        Operation::new(
            "discard_dead_letters",
            "Discard many",
            Admin,
            "admin/dlq/discard",
            "Discards the dead letters that rehearse_discard has selected: their steps will never be taken for these events.",
        )
        .with(&[FROZEN_SET])
        .base(r#"{"dry_run": false, "reason": ""}"#)
        .destroys(),
        Operation::new(
            "rehearse_requeue",
            "Select parked events",
            Operator,
            "admin/outbox/requeue",
            "Says which parked events a requeue or discard of many would concern, changes none, and freezes the set.",
        )
        .with(&[EVENT_TYPE, AGGREGATE, AGE, REFUSALS, AT_MOST])
        .base(r#"{"filter": {}, "dry_run": true, "reason": ""}"#),
        Operation::new(
            "requeue_outbox_entries",
            "Requeue many",
            Operator,
            "admin/outbox/requeue",
            "Lets the relay publish parked events again: those that rehearse_requeue has selected, or of a type, age, and so on.",
        )
        .with(&[FROZEN_SET, EVENT_TYPE, AGGREGATE, AGE, REFUSALS, AT_MOST])
        .base(r#"{"dry_run": false, "reason": ""}"#),
        Operation::new(
            "discard_outbox_entries",
            "Discard many",
            Admin,
            "admin/outbox/discard",
            "Discards the parked events that rehearse_requeue has selected: they will never be published, and later events will.",
        )
        .with(&[FROZEN_SET])
        .base(r#"{"dry_run": false, "reason": ""}"#)
        .destroys(),
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
        .deletes()
        .destroys(),
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
            "check_timeouts",
            "Check deadlines",
            Operator,
            "admin/timeouts/check",
            "Times out the sagas whose deadline has passed, now, and says how many.",
        ),
        Operation::new(
            "rehearse_housekeeping",
            "Rehearse housekeeping",
            Operator,
            "admin/housekeeping",
            "Says what a round of housekeeping would delete and archive now, and changes nothing.",
        )
        .base(r#"{"dry_run": true, "reason": ""}"#),
        Operation::new(
            "run_housekeeping",
            "Run housekeeping",
            Operator,
            "admin/housekeeping",
            "Deletes and archives, now, what is older than its retention in a service's messaging tables.",
        )
        .base(r#"{"dry_run": false, "reason": ""}"#)
        .destroys(),
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
            field("step", FieldKind::Text, "Only at this step").at("/scope/step"),
            field("order_id", FieldKind::Text, "Only for this order").at("/scope/order_id"),
            field("sku", FieldKind::Text, "Only for orders of this product").at("/scope/sku"),
        ]),
        Operation::new("disarm_fault", "Disarm", Operator, "admin/faults/{id}", "Ends a fault in all replicas.")
            .deletes(),
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
