//! The environment of tests: private PostgreSQL and NATS servers that can be stopped, crashed, frozen and wiped, a private
//! Prometheus and Alertmanager, links that can be slow, silent or cut, databases created from a template, services as processes,
//! and waiting without sleeping. Every process started here ends with the test that started it, however that test ends. This
//! crate does not depend on the suite's own crates.

#![allow(clippy::disallowed_methods, reason = "./scripts/test passes the addresses of the servers in the environment")]

mod database;
mod nats;
mod postgres;
mod process;
mod programs;
mod prometheus;
mod proxy;
mod wait;

pub use database::{Database, Server};
pub use nats::{Nats, Store};
pub use postgres::Postgres;
pub use process::{Process, Signal};
pub use programs::{bin, promtool};
pub use prometheus::Monitor;
pub use proxy::{Manner, Proxy};
pub use wait::{Answer, eventually, free_port};
