//! The arguments of operations besides service, id and reason, and those that several operations have.

/// An argument that goes into the request's body, or into its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: FieldKind,
    /// Where in the body, as a JSON pointer; its name if empty.
    pub(super) pointer: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    Number,
}

pub(super) const fn field(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
    Field { name, about, kind, pointer: "" }
}

impl Field {
    pub(super) const fn at(mut self, pointer: &'static str) -> Self {
        self.pointer = pointer;
        self
    }
}

pub(super) const LIMIT: Field = field("limit", FieldKind::Number, "The most entries: 1 to 200, 50 if left out");
pub(super) const SAGA: Field = field("saga_id", FieldKind::Text, "Only those of this saga").at("/filter/saga_id");
pub(super) const FROZEN_SET: Field =
    field("frozen_set", FieldKind::Text, "The frozen_set that a dry run answered: exactly its entries");
pub(super) const AT_MOST: Field =
    field("limit", FieldKind::Number, "How many at most, the oldest first: 100 if left out");
pub(super) const STEP: Field = field("step", FieldKind::Text, "Only those of this step").at("/filter/step");
pub(super) const EVENT_TYPE: Field =
    field("event_type", FieldKind::Text, "Only events of this type: OrderCreated").at("/filter/event_type");
pub(super) const AGGREGATE: Field =
    field("aggregate_id", FieldKind::Text, "Only events of this order or product").at("/filter/aggregate_id");
pub(super) const AGE: Field = field("older_than_seconds", FieldKind::Number, "Only those written at least so long ago")
    .at("/filter/older_than_seconds");
pub(super) const REFUSALS: Field =
    field("min_attempts", FieldKind::Number, "Only those refused at least so often").at("/filter/min_attempts");
pub(super) const CURSOR: Field = field("cursor", FieldKind::Text, "next_cursor of the page before");
