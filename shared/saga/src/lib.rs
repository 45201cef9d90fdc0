#![doc = include_str!("../README.md")]

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
