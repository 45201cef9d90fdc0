//! How a step bears with the systems it calls. Only failures come here: a business refusal is an
//! answer, is never asked for again, and moves no breaker.

#![cfg_attr(test, allow(clippy::expect_used, reason = "an expectation that fails is a test that fails"))]

mod breaker;
#[cfg(test)]
mod breaker_model_tests;
#[cfg(test)]
mod breaker_tests;
mod circuit;
mod policy;
mod retry;

pub use breaker::{Breaker, Breakers, Change, Open, Permit};
pub use circuit::{Counts, PastFailure, Snapshot, State};
pub use policy::{InvalidOverride, Overrides, Policy};
pub use retry::retry;
