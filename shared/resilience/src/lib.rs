#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::expect_used, reason = "a failed expectation fails the test"))]

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
