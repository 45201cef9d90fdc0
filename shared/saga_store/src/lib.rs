#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod annotation;
#[doc(hidden)]
pub mod armed_fault;
mod cause;
pub mod compensation;
#[doc(hidden)]
pub mod fault_hit;
mod instance;
pub mod operator_action;
pub mod query;
pub mod sample;
pub mod set_back;
pub mod stalled;
mod step;
mod three_phases;
pub mod timeout;

pub use cause::{Cause, Request};
pub use instance::{FirstStep, NewSaga, Sagas, insert};
pub use step::{AnswerError, StepTransaction, saga_of};
pub use three_phases::{DeliveryOutcome, Next, Outcome, Prepared, ThreePhases, three_phases};

/// The saga tables, which all services share.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Their schema.
pub const SCHEMA: &str = "saga";

/// Creates or upgrades the saga tables in their schema.
///
/// # Errors
/// As [`messaging::migrate`].
pub async fn migrate(options: &sqlx::postgres::PgConnectOptions) -> Result<(), sqlx::migrate::MigrateError> {
    messaging::apply_migrations(options, SCHEMA, "_migration", &MIGRATIONS).await
}

/// The events that `service` has published for sagas that are running, owe a step, or wait for an operator.
pub fn open_events(
    conn: &mut sqlx::PgConnection,
    service: saga::Service,
) -> futures_util::future::BoxFuture<'_, Result<Vec<uuid::Uuid>, sqlx::Error>> {
    Box::pin(query::open_events(conn, service))
}
