//! The audit with real servers: a sound suite passes, and every planted violation is found.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod after_restore;
mod desk;
mod fixture;
mod invariants;
mod watch;
mod whole_audit;
