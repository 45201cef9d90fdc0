#![doc = include_str!("../README.md")]
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
