//! A stage for tests: the suite's services in this process, on a database, a broker and a gateway
//! of their own. Nothing is shared between two tests but the database server.

#![expect(clippy::expect_used, clippy::disallowed_methods, reason = "this crate is for tests only")]

mod audited;
mod client;
mod collector;
mod door;
mod events;
mod operation;
mod prometheus;
mod replica;
mod running;
mod scrape;
mod stage;

pub use audited::audited;
pub use client::{Answer, Client};
pub use collector::{CollectedSpan, Collector};
pub use door::Door;
pub use events::Forged;
pub use operation::Operation;
pub use prometheus::{PrometheusApi, Rule, Series, Span};
pub use replica::{App, Replica, Tuning};
pub use running::Running;
pub use scrape::{Family, Sample, Scrape};
pub use stage::{Dancers, Stage, order_of};
pub use suite_tests_macros::test;
