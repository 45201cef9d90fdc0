//! Chaos from outside: a whole suite of real processes on private servers, broken on purpose while clients order from it,
//! and judged by what its clients were told and by the audit. It knows the suite only by its programs, its REST contract,
//! its database and its streams.
//!
//! [`sweep`] crashes a process at every fault point; [`chaos`] breaks everything at random, from a seed; [`restore`] sets
//! the database back to a moment ago.

#![allow(
    clippy::disallowed_methods,
    reason = "an experiment owns its tasks, and compares its own clock with the suite's"
)]

pub mod chaos;
pub mod cli;
pub mod clock;
pub mod conservation;
pub mod excuse;
pub mod history;
pub mod nemesis;
pub mod program;
pub mod proxy;
pub mod recovery;
pub mod report;
pub mod restore;
pub mod schedule;
pub mod stage;
pub mod sweep;
pub mod verdict;
pub mod workload;

pub use cli::{Cli, run};
pub use stage::{Settings, Stage};
