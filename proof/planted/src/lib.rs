//! Planted bugs: the suite is built once with all classic mistakes, each of which a process makes only when its environment
//! says so. Every mistake is provoked in a suite of its own and has to be noticed; the same provocation of the same
//! programs without the mistake has to find nothing. In chaos ([`storm`]) it has to be noticed by a judge who does not look
//! for it.

#![allow(clippy::disallowed_methods, reason = "an experiment owns its tasks")]

pub mod bug;
pub mod cli;
pub mod oracle;
pub mod provoke;
pub mod report;
pub mod scene;
pub mod storm;
pub mod trial;

pub use cli::{Cli, run};
