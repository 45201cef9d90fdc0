//! The audit against real servers: a sound suite passes it, and every planted violation is found.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a stand-in server ends with its test's runtime")]

mod fixture;
mod invariants;
mod watch;
mod whole_audit;
