//! Why a service could not start, with the setting that an operator has to change.

use std::{io, net::SocketAddr, time::Duration};

/// Why a service could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is missing, contradictory or unfit for the environment.
    #[error("{0}")]
    Configuration(String),
    /// The listening socket could not be opened.
    #[error("cannot listen on {address} (LISTEN): {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The database did not answer within the startup limit.
    #[error("PostgreSQL at {server} was not usable within {limit:?} (DATABASE_URL): {source}")]
    PostgresUnreachable {
        /// Host, port and database, without credentials.
        server: String,
        limit: Duration,
        source: sqlx::Error,
    },
    /// The server may lose committed transactions.
    #[error(
        "PostgreSQL runs with {setting} = {value}, so committed orders may be lost in a crash: set {setting} = on, or \
         ALLOW_UNSAFE_DURABILITY=true where data loss is acceptable"
    )]
    UnsafeDurability { setting: &'static str, value: String },
    /// The schema is not the one this build expects.
    #[error("the database schema does not match this build ({table}): {findings}; run `provision`")]
    SchemaMismatch { table: String, findings: String },
    /// A check of the database at start failed.
    #[error("cannot check the database's {subject}: {source}")]
    PostgresCheck { subject: String, source: sqlx::Error },
    /// The broker did not answer within the startup limit.
    #[error(
        "NATS at {server} was not usable within {limit:?} (NATS_URL, NATS_USER, NATS_PASSWORD, NATS_CA_FILE): {source}"
    )]
    NatsUnreachable {
        /// The configured URL, without credentials.
        server: String,
        limit: Duration,
        source: async_nats::ConnectError,
    },
}
