//! The shared saga-state table. A step, its outbox rows and the saga's state commit together, so
//! this crate only ever works inside a transaction that somebody else opened, and always in the
//! same order: [`lock`] the batch's sagas first, then the business rows, then [`Sagas::save`].

pub mod compensation;
mod instance;
pub mod query;
pub mod stalled;
pub mod timeout;

pub use instance::{NewSaga, Recorded, Sagas, lock, start};

/// The saga tables.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/saga");

/// Which of these sagas still run, or wait for an operator: those need their lost events again.
pub fn open_sagas<'c>(
    conn: &'c mut sqlx::PgConnection,
    saga_ids: &'c [uuid::Uuid],
) -> futures_util::future::BoxFuture<'c, Result<std::collections::HashSet<uuid::Uuid>, sqlx::Error>> {
    Box::pin(query::open_among(conn, saga_ids))
}
