#![doc = include_str!("../README.md")]

mod coordination;
mod coordinator;
mod plan;

pub use coordinator::{Commanded, Coordinated, Coordinator, Ended, Failure, Settings};
pub use plan::{Effect, Entry, Next, Orchestration, Reply, Turn};
