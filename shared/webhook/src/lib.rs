#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::expect_used, reason = "a failed expectation fails the test"))]

mod endpoint;
mod held;
mod metrics;
mod position;
mod runner;
mod sample;
mod settings;
mod settle;
mod signature;

pub use endpoint::{Endpoint, Obstacle};
pub use held::{HeldEvent, Recall, discard, list, requeue};
pub use metrics::Metrics;
pub use position::{Position, skip, state};
pub use runner::Runner;
pub use sample::{SAMPLED, read};
pub use settings::{Secrets, WebhookArgs};

/// Position and held events: once in the schema of each service, beside messaging's tables.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// The table in which [`MIGRATIONS`] are recorded.
pub const LEDGER: &str = "_webhook_migration";
