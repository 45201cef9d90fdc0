//! What tests need of the outside world: private PostgreSQL and NATS servers that can be stopped, crashed, frozen and
//! wiped, a private Prometheus and Alertmanager, databases made from a template, services as processes, and waiting without sleeping. Every process started
//! here ends with the test that started it, however that test ends. Nothing here knows the suite's own crates.

#![allow(
    clippy::disallowed_methods,
    reason = "tests are told by ./scripts/test, through the environment, where the servers are"
)]

mod database;
mod nats;
mod postgres;
mod process;
mod programs;
mod prometheus;
mod wait;

pub use database::{Database, Server};
pub use nats::{Nats, Store};
pub use postgres::Postgres;
pub use process::{Process, Signal};
pub use programs::{bin, promtool};
pub use prometheus::{Alertmanager, Prometheus};
pub use wait::{Answer, eventually, free_port};
