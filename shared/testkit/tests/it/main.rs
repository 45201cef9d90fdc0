//! Tests of the test servers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test that runs another one configures it through the environment")]

mod database;
mod nats;
mod postgres;
mod process;
mod prometheus;
mod wait;
