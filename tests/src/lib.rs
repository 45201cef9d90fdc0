//! The suite under test: its services in this process, on a private database, broker and gateway. Two tests share
//! nothing but the database server.

#![expect(clippy::expect_used, clippy::disallowed_methods, reason = "this crate is for tests only")]

mod audited;
mod browser;
mod client;
mod collector;
mod documented;
mod events;
mod housekeeping;
mod operation;
mod participants;
mod prometheus;
mod receiver;
mod replica;
mod running;
mod scrape;
mod suite;

use std::time::Duration;

pub use audited::audited;
pub use browser::Browser;
pub use client::{Answer, Client};
pub use collector::{CollectedSpan, Collector};
pub use documented::AsyncApi;
pub use events::Forged;
pub use housekeeping::run_housekeeping;
pub use operation::Operation;
pub use participants::{Participants, order_of};
pub use prometheus::{PrometheusApi, Rule, Series, Span};
pub use receiver::{Received, Receiver, WEBHOOK_SECRET};
pub use replica::{App, Replica, Tuning};
pub use running::Running;
pub use scrape::{Family, Sample, Scrape};
pub use suite::{CONFIRMED, TestSuite};
pub use suite_tests_macros::test;

/// How long a test waits for anything.
pub const LIMIT: Duration = Duration::from_secs(30);

/// [`testkit::eventually`] with this limit.
#[track_caller]
pub fn eventually<A: testkit::Answer>(probe: impl AsyncFnMut() -> A) -> impl Future<Output = anyhow::Result<A::Value>> {
    testkit::eventually(LIMIT, probe)
}
