//! The migrations of this crate, and how migrations are applied. Each set of migrations is recorded in its own table, beside the
//! tables that it creates, so that several sets can share a schema.

use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    migrate::{MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use crate::connect_writable;

/// Outbox, inbox, dead letters and the relay's lease: once in the schema of each service.
pub static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Creates or updates this crate's tables in `schema`. `schema` is the service's own, and is created if it is missing. The
/// service's connections need it as their `search_path`.
///
/// # Errors
/// When `schema` is not a name of the form `[a-z_][a-z0-9_]{0,62}`, when the server is read-only, and when a migration fails,
/// has changed since it was applied, or was applied by a newer build and is not additive.
pub async fn migrate(options: &PgConnectOptions, schema: &str) -> Result<(), MigrateError> {
    apply_migrations(options, schema, "_messaging_migration", &MIGRATIONS).await
}

/// Applies a service's own migrations in the same way; `ledger` is the table in `schema` that records them.
///
/// # Errors
/// As [`migrate`]; `ledger` must have the same form.
pub async fn apply_migrations(
    options: &PgConnectOptions,
    schema: &str,
    ledger: &str,
    migrations: &Migrator,
) -> Result<(), MigrateError> {
    [schema, ledger].into_iter().try_for_each(check_name)?;
    // The `security definer` functions keep this path. Without `pg_temp` at its end they would look up the caller's temporary
    // tables first, and could run the caller's code in them with the owner's permissions.
    let options = options.clone().options([("search_path", format!("{schema}, pg_temp"))]);
    // On a separate connection, because a failed migration leaves its lock on it.
    let mut connection = connect_writable(&options).await?;
    let outcome = apply(&mut connection, schema, format!("{schema}.{ledger}"), migrations).await;
    let _ = connection.close().await;
    outcome
}

/// Names go unquoted into SQL, so only those that need no quotes are accepted.
fn check_name(name: &str) -> Result<(), MigrateError> {
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if begins && name.len() <= 63 && name.bytes().all(plain) {
        return Ok(());
    }
    let refused = format!("`{name}` is not a name of the form [a-z_][a-z0-9_]{{0,62}}");
    Err(MigrateError::Execute(sqlx::Error::InvalidArgument(refused)))
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

/// An applied migration that this build does not know and that is not newer and additive. After a roll-back the ledger has
/// additive migrations of a newer build; services check them in the same way at start.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_need_no_quotes_are_accepted() {
        let longest = "a".repeat(63);
        for name in ["orders", "_migration", "a", "_", "shop_2", &longest] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let too_long = "a".repeat(64);
        for name in ["", "Orders", "2shop", "my-shop", "a b", "shop.sale", "caf\u{e9}", "shop\"", &too_long] {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains(&format!("`{name}` is not a name")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_refused_name_reaches_no_server() {
        let nowhere = PgConnectOptions::new().host("127.0.0.1").port(1);
        let none = Migrator::with_migrations(Vec::new());
        for (schema, ledger) in [("my-shop", "_migration"), ("shop", "a b")] {
            let refused = apply_migrations(&nowhere, schema, ledger, &none).await;
            let invalid = matches!(refused, Err(MigrateError::Execute(sqlx::Error::InvalidArgument(_))));
            assert!(invalid, "{refused:?}");
        }
    }
}
