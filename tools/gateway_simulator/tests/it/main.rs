//! The simulator over real HTTP on a port of 127.0.0.1.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod charges;
mod durability;
mod faults;
mod lost_answers;
mod reconciliation;
mod refunds_and_voids;
mod shell;
mod support;
