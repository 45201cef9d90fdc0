//! The shared saga-state table. A step, its outbox rows and the saga's state commit together, so
//! this crate only ever works inside a transaction that somebody else opened, and always in the
//! same order: [`lock`] the batch's sagas first, then the business rows, then [`Sagas::save`].

pub mod annotation;
pub mod armed_fault;
pub mod compensation;
pub mod fault_hit;
mod instance;
pub mod query;
pub mod sample;
pub mod stalled;
pub mod timeout;

pub use instance::{FirstStep, NewSaga, Recorded, Sagas, insert, lock, start};

/// The saga tables.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/saga");

/// The events that `service` has published for sagas that still run, or wait for an operator.
pub fn open_events(
    conn: &mut sqlx::PgConnection,
    service: saga::Service,
) -> futures_util::future::BoxFuture<'_, Result<Vec<uuid::Uuid>, sqlx::Error>> {
    Box::pin(query::open_events(conn, service))
}
