//! The migrations of this crate, and how migrations are applied. Each set of migrations is recorded in its own table, beside the
//! tables that it creates, so that several sets can share a schema.

use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

/// Outbox, inbox, dead letters and the relay's lease: once in the schema of each service.
pub static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Creates or updates this crate's tables in `schema`. `schema` is the service's own, in lower case, and is created if it is
/// missing. The service's connections need it as their `search_path`.
///
/// # Errors
/// When a migration fails, has changed since it was applied, or was applied by a newer build and is not additive.
pub async fn migrate(options: &PgConnectOptions, schema: &str) -> Result<(), MigrateError> {
    apply_migrations(options, schema, "_messaging_migration", &MIGRATIONS).await
}

/// Applies a service's own migrations in the same way; `ledger` is the table in `schema` that records them.
///
/// # Errors
/// As [`migrate`].
pub async fn apply_migrations(
    options: &PgConnectOptions,
    schema: &str,
    ledger: &str,
    migrations: &Migrator,
) -> Result<(), MigrateError> {
    // The `security definer` functions keep this path. Without `pg_temp` at its end they would look up the caller's temporary
    // tables first, and could run the caller's code in them with the owner's permissions.
    let options = options.clone().options([("search_path", format!("{schema}, pg_temp"))]);
    // On a separate connection, because a failed migration leaves its lock on it.
    let mut connection = PgConnection::connect_with(&options).await?;
    let outcome = apply(&mut connection, schema, format!("{schema}.{ledger}"), migrations).await;
    let _ = connection.close().await;
    outcome
}

async fn apply(
    connection: &mut PgConnection,
    schema: &str,
    ledger: String,
    migrations: &Migrator,
) -> Result<(), MigrateError> {
    let exists = sqlx::query_scalar("select to_regnamespace($1) is not null").bind(schema);
    if !exists.fetch_one(&mut *connection).await? {
        let create = AssertSqlSafe(format!("create schema if not exists {schema}"));
        sqlx::raw_sql(create).execute(&mut *connection).await?;
    }
    if let Some(version) = unsupported(connection, &ledger, migrations).await? {
        return Err(MigrateError::VersionMissing(version));
    }
    let mut migrations = Migrator::with_migrations(migrations.iter().cloned().collect());
    migrations.dangerous_set_table_name(ledger);
    migrations.set_ignore_missing(true);
    // The same as `run`, but its future is `Send`.
    migrations.run_direct(None, connection, false).await
}

/// An applied migration that this build does not know and that is not newer and additive. After a roll-back the ledger has additive
/// migrations of a newer build; services check them in the same way at start.
async fn unsupported(
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
