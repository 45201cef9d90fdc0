//! Why a service could not start, in words an operator can act on.

/// Why a service could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is missing, contradictory or unfit for the environment.
    #[error("{0}")]
    Configuration(String),
    /// The listening socket could not be opened.
    #[error("cannot listen on {address} (LISTEN): {source}")]
    Listen {
        /// The configured address.
        address: std::net::SocketAddr,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The database did not answer within the startup limit.
    #[error("PostgreSQL at {server} was not usable within {limit:?} (DATABASE_URL): {source}")]
    PostgresUnreachable {
        /// Host, port and database, without credentials.
        server: String,
        /// The configured limit.
        limit: std::time::Duration,
        /// The last attempt's failure.
        source: sqlx::Error,
    },
    /// The server may lose committed transactions.
    #[error(
        "PostgreSQL runs with {setting} = {value}, so committed orders may be lost in a crash: set {setting} = \
         {expected}, or ALLOW_UNSAFE_DURABILITY=true where losing data is fine"
    )]
    UnsafeDurability {
        /// The server setting's name.
        setting: &'static str,
        /// Its present value.
        value: String,
        /// A value that is safe.
        expected: &'static str,
    },
    /// The schema is not the one this build expects.
    #[error("the database schema does not match this build ({table}): {findings}; run `provision`")]
    SchemaMismatch {
        /// The table that records applied migrations.
        table: String,
        /// What is missing, changed or unknown.
        findings: String,
    },
    /// A question to the database that must be answered at start failed.
    #[error("cannot check the database's {subject}: {source}")]
    PostgresCheck {
        /// What was to be checked.
        subject: String,
        /// The database's answer.
        source: sqlx::Error,
    },
    /// The broker did not answer within the startup limit.
    #[error("NATS at {server} was not usable within {limit:?} (NATS_URL, NATS_USER, NATS_PASSWORD): {source}")]
    NatsUnreachable {
        /// The configured URL, without credentials.
        server: String,
        /// The configured limit.
        limit: std::time::Duration,
        /// The last attempt's failure.
        source: async_nats::ConnectError,
    },
}
