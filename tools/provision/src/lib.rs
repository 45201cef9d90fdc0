//! Makes ready what the services find when they start: roles, schemas and tables in Postgres, streams and
//! durable consumers in NATS. The services have no right to any of this themselves. Everything here may be
//! repeated at any time, also while the suite runs.

pub mod broker;
pub mod config;
pub mod database;
pub mod nats_conf;
