//! Provisions a database: roles, schemas, tables, permissions, partitions. One `provision` at a time works on a database; running
//! it again changes only the passwords.

mod migrations;
mod roles;

use std::{str::FromStr, time::Duration};

use contracts::Participant;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, migrate::MigrateError, postgres::PgConnectOptions,
};
use tokio::time::{Instant, sleep, timeout};

pub use roles::Passwords;

/// The permissions of each role; idempotent, also while the participants run.
const GRANTS: &str = concat!(
    include_str!("../../../migrations/roles/grants.sql"),
    include_str!("../../../migrations/roles/auditor.sql")
);

/// Writes the manifest to the table that the grants read.
const PARTICIPANTS: &str = "insert into participant select * from unnest($1::text[], $2::text[], $3::text[])";

/// The key of the advisory lock, used for nothing else.
const LOCK: i64 = 0x7061_735f_6465_7472;

/// How long to wait for locks, including that of another `provision`.
const LOCK_TIMEOUT: &str = "60s";

/// Partitions are created for today and so many days after; the services create the later ones.
const DAYS_AHEAD: i32 = 7;

/// The settings of the database.
#[derive(Clone)]
pub struct Settings {
    pub passwords: Passwords,
    /// Maximum number of connections of each role; `None`: unlimited.
    pub connection_limit: Option<u32>,
    /// How long to wait for a server that is not running yet.
    pub wait: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the URL is not the one of a PostgreSQL database")]
    Url { source: sqlx::Error },
    #[error("PostgreSQL at {host} did not answer within {waited:?}")]
    Unreachable { host: String, waited: Duration, source: sqlx::Error },
    #[error("PostgreSQL at {host} refuses the connection")]
    Refused { host: String, source: sqlx::Error },
    #[error("PostgreSQL {version} is too old: 15 or newer is needed")]
    TooOld { version: String },
    #[error("another `provision` is still at work on this database")]
    Busy { source: sqlx::Error },
    #[error("cannot {action}")]
    Statement { action: String, source: sqlx::Error },
    #[error("cannot apply the migrations of the schema {schema} that are noted in {ledger}")]
    Migration { schema: &'static str, ledger: String, source: MigrateError },
}

/// Provisions the database, waiting for it with a log line per second.
pub async fn provision(options: &PgConnectOptions, settings: &Settings) -> Result<(), Error> {
    let options = options
        .clone()
        .application_name("provision")
        .disable_statement_logging()
        .options([("lock_timeout", LOCK_TIMEOUT)]);
    let mut connection = connect(&options, settings.wait).await?;
    let done = provision_alone(&mut connection, &options, settings).await;
    // Closing releases the lock, also after an error.
    let _ = connection.close().await;
    done
}

/// [`provision`] with settings for tests: each role's password is its name.
pub async fn prepare(database_url: String) -> Result<(), Error> {
    let options = PgConnectOptions::from_str(&database_url).map_err(|source| Error::Url { source })?;
    let wait = Duration::from_secs(30);
    provision(&options, &Settings { passwords: Passwords::same_as_roles(), connection_limit: None, wait }).await
}

async fn provision_alone(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    settings: &Settings,
) -> Result<(), Error> {
    refuse_old_server(connection).await?;
    let locked = sqlx::query("select pg_advisory_lock($1)").bind(LOCK).execute(&mut *connection).await;
    locked.map_err(|source| match source.as_database_error().and_then(|answer| answer.code()).as_deref() {
        Some("55P03") => Error::Busy { source },
        _ => cannot("take the lock against another `provision`")(source),
    })?;

    for (role, password) in settings.passwords.by_role() {
        let ensured = roles::ensure(connection, role, password, settings.connection_limit).await;
        ensured.map_err(cannot(format!("create the role {role}")))?;
    }
    for schema in contracts::PARTICIPANTS.iter().map(|participant| participant.schema).chain(["saga"]) {
        let create = AssertSqlSafe(format!("create schema if not exists {schema}"));
        let created = sqlx::raw_sql(create).execute(&mut *connection).await;
        created.map_err(cannot(format!("create the schema {schema}")))?;
    }
    migrations::run(options).await?;
    grant(connection).await.map_err(cannot("grant the roles their permissions"))?;
    for Participant { schema, .. } in contracts::PARTICIPANTS {
        let ensure = AssertSqlSafe(format!("select {schema}.ensure_partitions($1)"));
        let ensured = sqlx::query(ensure).bind(DAYS_AHEAD).execute(&mut *connection).await;
        ensured.map_err(cannot(format!("create the partitions of the schema {schema}")))?;
    }
    Ok(())
}

async fn grant(connection: &mut PgConnection) -> sqlx::Result<()> {
    let column = |of: fn(&Participant) -> String| contracts::PARTICIPANTS.iter().map(of).collect::<Vec<_>>();
    let create = "create temporary table participant (service text, schema name, role name)";
    sqlx::raw_sql(create).execute(&mut *connection).await?;
    sqlx::query(PARTICIPANTS)
        .bind(column(|participant| participant.service.to_string()))
        .bind(column(|participant| participant.schema.to_owned()))
        .bind(column(Participant::role))
        .execute(&mut *connection)
        .await?;
    sqlx::raw_sql(GRANTS).execute(connection).await.map(drop)
}

/// Connects, waiting up to `limit` for a server that is not there yet.
async fn connect(options: &PgConnectOptions, limit: Duration) -> Result<PgConnection, Error> {
    let started = Instant::now();
    let host = format!("{}:{}", options.get_host(), options.get_port());
    loop {
        let attempt = timeout(Duration::from_secs(5), messaging::connect_writable(options)).await;
        let source = match attempt {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(elapsed) => sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)),
        };
        let waited = started.elapsed();
        if !is_temporary(&source) {
            return Err(Error::Refused { host, source });
        }
        if waited >= limit {
            return Err(Error::Unreachable { host, waited, source });
        }
        tracing::info!(host, "waiting for PostgreSQL: {source}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// Whether the server may accept a connection later.
fn is_temporary(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        // It starts, it stops, or it has no connection left.
        sqlx::Error::Database(answer) => answer.code().is_some_and(|code| code.starts_with("57P") || code == "53300"),
        _ => false,
    }
}

async fn refuse_old_server(connection: &mut PgConnection) -> Result<(), Error> {
    let version: String = sqlx::query_scalar("show server_version")
        .fetch_one(connection)
        .await
        .map_err(cannot("read the server's version"))?;
    let major = version.split(['.', ' ']).next().and_then(|number| number.parse::<u32>().ok());
    if major.is_some_and(|major| major < 15) { Err(Error::TooOld { version }) } else { Ok(()) }
}

fn cannot(action: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Error {
    let action = action.into();
    |source| Error::Statement { action, source }
}
