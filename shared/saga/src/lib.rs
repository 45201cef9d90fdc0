//! The vocabulary of choreographed sagas, and nothing that runs: no clock, no IO.
//!
//! A saga is defined once, as a [`SagaDefinition`]: a table of [`Step`]s. Consumers, filters,
//! retry policies, metric labels and pictures are built from that table, and [`SagaDefinition::check`]
//! proves that the table is complete. [`SagaState`] decides which transitions are legal.

mod check;
mod definition;
mod event;
mod mermaid;
mod state;

pub use definition::{
    Breaker, CompensationPolicy, Consumer, Kind, Retry, SagaDefinition, Step, StepOn, Trigger, consumers,
};
pub use event::{Event, EventType, Expired, Refusal, Service, Timeout};
pub use state::{IllegalTransition, SagaState, Status, StepStatus, Transition};
