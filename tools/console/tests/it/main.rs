//! The audit against real servers: a sound suite passes it, and every planted violation is found.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

mod after_restore;
mod fixture;
mod invariants;
mod watch;
mod whole_audit;
