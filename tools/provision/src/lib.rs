//! Creates what the services need at their start: roles, schemas and tables in Postgres, streams and durable consumers in NATS.
//! The services have no permission to create any of it. Every function is idempotent, also while the suite runs.

pub mod broker;
pub mod config;
pub mod database;
pub mod nats_conf;
