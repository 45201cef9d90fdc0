//! The simulator as its callers see it: real HTTP against a port of 127.0.0.1.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod charges;
mod durability;
mod faults;
mod going_astray;
mod reconciliation;
mod refunds_and_voids;
mod shell;
mod support;
