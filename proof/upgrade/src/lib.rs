//! A rolling upgrade and its rollback: two builds of all services side by side under load. The older build is the working tree,
//! the newer one has `next.patch` on top: an event in a new version, an event with a new field, a new step and new columns.
//! Nothing may be lost, doubled, cancelled or dead-lettered because of it.

#![allow(clippy::disallowed_methods, reason = "an experiment owns its tasks")]

pub mod cli;
pub mod evidence;
pub mod report;
pub mod rolling;

pub use cli::{Cli, run};
