//! Planted bugs: the suite is built once with all classic mistakes, each of them enabled by an environment variable. Every
//! mistake is provoked in a private suite and must be detected; the same provocation of the same programs without the mistake
//! must find nothing. In chaos ([`under_chaos`]) it must be detected by the general verdict.

#![allow(clippy::disallowed_methods, reason = "an experiment owns its tasks")]

pub mod bug;
pub mod cli;
pub mod experiment;
pub mod oracle;
pub mod provoke;
pub mod report;
pub mod trial;
pub mod under_chaos;

pub use cli::{Cli, run};
