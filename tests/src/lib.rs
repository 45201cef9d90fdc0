//! The suite under test: its services in this process, on a private database, broker and gateway. Two tests share
//! nothing but the database server.

#![expect(clippy::expect_used, clippy::disallowed_methods, reason = "this crate is for tests only")]

mod audited;
mod client;
mod collector;
mod events;
mod operation;
mod participants;
mod prometheus;
mod replica;
mod running;
mod scrape;
mod suite;

pub use audited::audited;
pub use client::{Answer, Client};
pub use collector::{CollectedSpan, Collector};
pub use events::Forged;
pub use operation::Operation;
pub use participants::{Participants, order_of};
pub use prometheus::{PrometheusApi, Rule, Series, Span};
pub use replica::{App, Replica, Tuning};
pub use running::Running;
pub use scrape::{Family, Sample, Scrape};
pub use suite::{CONFIRMED, TestSuite};
pub use suite_tests_macros::test;
