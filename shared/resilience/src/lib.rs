//! How a step bears with the systems it calls. Only failures come here: a business refusal is an
//! answer, and is never asked for again.

#![cfg_attr(test, allow(clippy::expect_used, reason = "an expectation that fails is a test that fails"))]

mod retry;

pub use retry::retry;
