//! What a service checks of its database before it trusts it: that committed means durable, and that the schema is
//! the one this build was made for.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{AssertSqlSafe, PgPool, migrate::Migrator};

use crate::{error::StartError, lifecycle::every_second};

/// A setting, the values that lose committed transactions, and one that does not.
const DURABILITY: [(&str, &str, &str); 3] =
    [("fsync", "off", "on"), ("full_page_writes", "off", "on"), ("synchronous_commit", "off", "on")];

/// Refuses a server that may lose committed transactions, unless that is allowed by name.
///
/// # Errors
/// [`StartError::UnsafeDurability`] naming the setting, [`StartError::PostgresCheck`] when it cannot be read within `limit`.
pub async fn check_durability(pool: &PgPool, allow_unsafe: bool, limit: Duration) -> Result<(), StartError> {
    for (setting, unsafe_value, expected) in DURABILITY {
        let value: String = read(limit, format!("setting {setting}"), async || {
            sqlx::query_scalar("select current_setting($1)").bind(setting).fetch_one(pool).await
        })
        .await?;
        if value != unsafe_value {
            continue;
        }
        if !allow_unsafe {
            return Err(StartError::UnsafeDurability { setting, value, expected });
        }
        tracing::warn!(
            setting,
            value,
            "PostgreSQL may lose committed transactions, as ALLOW_UNSAFE_DURABILITY permits"
        );
    }
    Ok(())
}

/// Compares the migrations recorded in `table` (for example `orders._migration`) with those of this build.
///
/// # Errors
/// [`StartError::SchemaMismatch`] listing what is missing, changed or unknown; [`StartError::PostgresCheck`] when the
/// table cannot be read within `limit`.
pub async fn expect_migrations(
    pool: &PgPool,
    table: &str,
    expected: &Migrator,
    limit: Duration,
) -> Result<(), StartError> {
    if !table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.') {
        return Err(StartError::Configuration(format!("`{table}` is not a table's name")));
    }
    let applied = read(limit, format!("migrations in {table}"), async || match applied(pool, table).await {
        Err(error) if is_missing_table(&error) => Ok(Vec::new()),
        applied => applied,
    })
    .await?;
    let findings = differences(expected, &applied);
    if findings.is_empty() {
        return Ok(());
    }
    Err(StartError::SchemaMismatch { table: table.to_owned(), findings: findings.join("; ") })
}

/// Waits for the answer as for the database itself.
async fn read<T>(
    limit: Duration,
    subject: String,
    ask: impl AsyncFnMut() -> Result<T, sqlx::Error>,
) -> Result<T, StartError> {
    let answer = every_second(limit, &format!("the database's {subject}"), ask).await;
    answer.map_err(|source| StartError::PostgresCheck { subject, source })
}

struct Applied {
    version: i64,
    checksum: Vec<u8>,
    success: bool,
}

async fn applied(pool: &PgPool, table: &str) -> Result<Vec<Applied>, sqlx::Error> {
    let query = format!("select version, checksum, success from {table} order by version");
    let rows: Vec<(i64, Vec<u8>, bool)> = sqlx::query_as(AssertSqlSafe(query)).fetch_all(pool).await?;
    Ok(rows.into_iter().map(|(version, checksum, success)| Applied { version, checksum, success }).collect())
}

fn differences(expected: &Migrator, applied: &[Applied]) -> Vec<String> {
    let mut known: BTreeMap<i64, _> = expected
        .iter()
        .filter(|migration| !migration.migration_type.is_down_migration())
        .map(|migration| (migration.version, migration))
        .collect();
    let mut findings = Vec::new();
    for row in applied {
        let version = row.version;
        match known.remove(&version) {
            None => findings.push(format!("{version} is unknown to this build (made by a newer one?)")),
            Some(_) if !row.success => findings.push(format!("{version} was begun but not finished")),
            Some(migration) if *migration.checksum != *row.checksum => {
                findings.push(format!("{version} ({}) was changed after it was applied", migration.description));
            }
            Some(_) => {}
        }
    }
    let missing = known.values();
    findings.extend(missing.map(|migration| format!("{} ({}) is missing", migration.version, migration.description)));
    findings
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    // 42P01 undefined_table, 3F000 invalid_schema_name.
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "42P01" || code == "3F000")
}

#[cfg(test)]
mod tests {
    use sqlx::{
        SqlStr,
        migrate::{Migration, MigrationType},
    };

    use super::*;

    fn migration(version: i64, sql: &'static str) -> Migration {
        Migration::new(version, "a table".into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    }

    fn row(migration: &Migration) -> Applied {
        Applied { version: migration.version, checksum: migration.checksum.to_vec(), success: true }
    }

    #[test]
    fn an_identical_schema_has_no_differences() {
        let first = migration(1, "create table a ()");
        let rows = [row(&first)];
        assert!(differences(&Migrator::with_migrations(vec![first]), &rows).is_empty());
    }

    #[test]
    fn missing_changed_and_unknown_migrations_are_named() {
        let build = Migrator::with_migrations(vec![migration(1, "new text"), migration(2, "two")]);
        let rows = [row(&migration(1, "old text")), row(&migration(3, "three"))];
        let findings = differences(&build, &rows).join("; ");
        assert!(findings.contains("1 (a table) was changed"), "{findings}");
        assert!(findings.contains("2 (a table) is missing"), "{findings}");
        assert!(findings.contains("3 is unknown"), "{findings}");
    }
}
