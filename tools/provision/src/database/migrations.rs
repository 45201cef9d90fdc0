//! The tables. Each set of migrations is noted in a table of its own, beside the tables that it made; the
//! messaging tables are made once in each service's schema.

use contracts::Participant;
use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use super::Error;

/// Applies what is not yet applied, everywhere.
pub(super) async fn run(options: &PgConnectOptions) -> Result<(), Error> {
    apply(options, "saga", "_migration", sqlx::migrate!("../../migrations/saga")).await?;
    for Participant { schema, .. } in contracts::PARTICIPANTS {
        apply(options, schema, "_messaging_migration", sqlx::migrate!("../../migrations/messaging")).await?;
    }
    for Participant { service, schema, .. } in contracts::PARTICIPANTS {
        apply(options, schema, "_migration", of(service.0)).await?;
    }
    Ok(())
}

// `of`: a participant's own migrations, from the folder of its name; build.rs writes it.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Uses a connection of its own, because a migration that fails leaves its lock behind on it, and because the
/// search path of the connection decides in which schema the tables are made.
async fn apply(
    options: &PgConnectOptions,
    schema: &'static str,
    ledger: &str,
    mut migrations: Migrator,
) -> Result<(), Error> {
    let ledger = format!("{schema}.{ledger}");
    migrations.dangerous_set_table_name(ledger.clone());
    // The functions that run with their owner's rights keep this path. Without `pg_temp` at its end, they would
    // look first at the caller's temporary tables, and run the caller's code in them with the owner's rights.
    let options = options.clone().options([("search_path", format!("{schema}, pg_temp"))]);
    let outcome = match PgConnection::connect_with(&options).await {
        Ok(mut connection) => {
            let outcome = migrate(&mut connection, &ledger, &mut migrations).await;
            let _ = connection.close().await;
            outcome
        }
        Err(error) => Err(error.into()),
    };
    outcome.map_err(|source| Error::Migration { schema, ledger, source })
}

async fn migrate(connection: &mut PgConnection, ledger: &str, migrations: &mut Migrator) -> Result<(), MigrateError> {
    if let Some(version) = not_to_be_worked_with(connection, ledger, migrations).await? {
        return Err(MigrateError::VersionMissing(version));
    }
    migrations.set_ignore_missing(true);
    // What `run` does, but as a future that may move between threads.
    migrations.run_direct(None, connection, false).await
}

/// A migration that this build does not know and that is not a newer addition. The ledger holds additions of a newer build
/// after a roll-back; the services judge them in the same way when they start.
async fn not_to_be_worked_with(
    connection: &mut PgConnection,
    ledger: &str,
    migrations: &Migrator,
) -> Result<Option<i64>, sqlx::Error> {
    let exists = sqlx::query_scalar("select to_regclass($1) is not null").bind(ledger);
    if !exists.fetch_one(&mut *connection).await? {
        return Ok(None);
    }
    let known: Vec<i64> = migrations.iter().map(|migration| migration.version).collect();
    let unknown = AssertSqlSafe(format!(
        "select min(version) from {ledger}
        where version <> all($1) and (version < $2 or description not like '% additive')"
    ));
    let newest = known.iter().max().copied().unwrap_or_default();
    sqlx::query_scalar(unknown).bind(&known).bind(newest).fetch_one(connection).await
}
