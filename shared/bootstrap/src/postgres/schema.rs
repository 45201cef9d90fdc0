//! Checks of the database at start: commits are durable, and the schema matches this build.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{AssertSqlSafe, PgPool, migrate::Migrator};

use crate::{error::StartError, wait::every_second};

/// The settings that may lose committed transactions when they are off, or `local` with a synchronous standby.
const DURABILITY: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

/// Refuses a server that may lose committed transactions, unless the configuration allows it.
///
/// # Errors
/// [`StartError::UnsafeDurability`] naming the setting, [`StartError::PostgresCheck`] when it cannot be read within `limit`.
pub async fn check_durability(pool: &PgPool, allow_unsafe: bool, limit: Duration) -> Result<(), StartError> {
    for setting in DURABILITY {
        let current = "select current_setting($1), current_setting('synchronous_standby_names') <> ''";
        let (value, has_standby): (String, bool) = read(limit, format!("setting {setting}"), async || {
            sqlx::query_as(current).bind(setting).fetch_one(pool).await
        })
        .await?;
        // The value `local` of synchronous_commit does not wait for the standby.
        if value != "off" && !(value == "local" && has_standby) {
            continue;
        }
        if !allow_unsafe {
            return Err(StartError::UnsafeDurability { setting, value });
        }
        tracing::warn!(
            setting,
            value,
            "PostgreSQL may lose committed transactions, as ALLOW_UNSAFE_DURABILITY permits"
        );
    }
    Ok(())
}

/// Compares the migrations recorded in `table` (for example `orders._migration`) with those of this build. Newer ones are
/// accepted when their names say that they are additive, so that a build can run beside its successor and after a roll-back.
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

/// Runs a query, retrying as for the connection itself.
async fn read<T>(
    limit: Duration,
    subject: String,
    ask: impl AsyncFnMut() -> Result<T, sqlx::Error>,
) -> Result<T, StartError> {
    let answer = every_second(limit, &format!("the database's {subject}"), ask).await;
    answer.map_err(|source| StartError::PostgresCheck { subject, source })
}

#[derive(sqlx::FromRow)]
struct Applied {
    version: i64,
    description: String,
    checksum: Vec<u8>,
    success: bool,
}

async fn applied(pool: &PgPool, table: &str) -> Result<Vec<Applied>, sqlx::Error> {
    let query = format!("select version, description, checksum, success from {table} order by version");
    sqlx::query_as(AssertSqlSafe(query)).fetch_all(pool).await
}

/// Whether the migration is declared compatible with older builds; its file is then called `0007_points_additive.sql`.
fn is_additive(description: &str) -> bool {
    description.ends_with(" additive")
}

fn differences(expected: &Migrator, applied: &[Applied]) -> Vec<String> {
    let mut known: BTreeMap<i64, _> = expected
        .iter()
        .filter(|migration| !migration.migration_type.is_down_migration())
        .map(|migration| (migration.version, migration))
        .collect();
    let newest = known.last_key_value().map_or(0, |(version, _)| *version);
    let mut findings = Vec::new();
    for row in applied {
        let version = row.version;
        match known.remove(&version) {
            None if version > newest && is_additive(&row.description) => {}
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
        let description = migration.description.to_string();
        Applied { version: migration.version, description, checksum: migration.checksum.to_vec(), success: true }
    }

    #[test]
    fn newer_migrations_may_only_add() {
        let build = || Migrator::with_migrations(vec![migration(1, "one"), migration(3, "three")]);
        let applied = |version: i64, description: &str| {
            let foreign = Applied { description: description.to_owned(), ..row(&migration(version, "foreign")) };
            let mut rows = vec![row(&migration(1, "one")), row(&migration(3, "three")), foreign];
            rows.sort_by_key(|row| row.version);
            differences(&build(), &rows).join("; ")
        };
        assert_eq!(applied(4, "points additive"), "");
        assert!(applied(4, "points").contains("4 is unknown"));
        assert!(applied(4, "additive points").contains("4 is unknown"));
        assert!(applied(2, "points additive").contains("2 is unknown"), "of another line of builds");
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
