//! Chaos from outside: a suite of real processes on private servers, broken on purpose while clients place orders, and judged by
//! the clients' answers and the audit. It uses only the suite's programs, REST contract, database and streams.
//!
//! [`sweep`] crashes a process at every fault point; [`chaos`] injects random faults from a seed; [`restore`] restores a backup
//! of the database.

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
pub mod recovery;
pub mod report;
pub mod restore;
pub mod schedule;
pub mod sweep;
pub mod testbed;
pub mod verdict;
pub mod workload;

pub use cli::{Cli, run};
/// Orders and audit options, for tests of services that use this crate.
pub use console::{audit::Options, suite::NewOrder};
pub use testbed::{Settings, Testbed};
