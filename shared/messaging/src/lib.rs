#![doc = include_str!("../README.md")]
#![expect(
    clippy::disallowed_methods,
    reason = "this crate spawns the tasks that steps run in, joins them, and generates trace ids"
)]

pub mod acknowledged;
mod batch;
pub mod breaker_change;
mod bus;
pub mod consumer;
mod consumer_list;
mod contention;
pub mod dead_letter;
mod direct;
mod dry_run;
mod envelope;
mod error;
pub mod frozen_set;
pub mod gather;
pub mod housekeeping;
pub mod inbox;
mod isolation;
pub mod lease;
pub mod metrics;
mod migrations;
pub mod outbox;
pub mod periodic;
pub mod relay;
mod replication;
mod response_timeout;
pub mod sample;
mod settings;
mod span;
mod subscription;
pub mod topology;
mod trace_context;
mod unit_of_work;

use std::{sync::Arc, time::Duration};

use sqlx::postgres::types::PgInterval;

pub use batch::{Batch, Committed, Delivery, StepResult};
pub use bus::Bus;
pub use consumer::Consumer;
pub use contention::{Contention, retry_contended};
pub(crate) use envelope::EnvelopeError;
pub use envelope::{Context, Metadata, SagaRef};
pub use error::{Severity, StepError};
pub use faults::{FaultPoint, Faults, Subject};
pub use metrics::Metrics;
pub use migrations::{MIGRATIONS, apply_migrations, migrate};
pub use relay::Relay;
pub use replication::connect_writable;
pub use response_timeout::statement_timeout;
pub use settings::MessagingArgs;
pub use span::Span;
pub use subscription::{Subscription, subscribe};
pub use trace_context::TraceContext;
pub use unit_of_work::{ClaimedWork, Outbox, PublishError, UnitOfWork};

/// Receives the state of a long-running component: that it works, or why it does not.
pub type Report = Arc<dyn Fn(Result<(), &str>) + Send + Sync>;

/// A duration as a PostgreSQL interval, at most some 290,000 years.
pub fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}
