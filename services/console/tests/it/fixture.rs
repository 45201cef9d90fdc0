//! A database with the suite's tables and a few orders in it, all of them sound.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::Database;

/// The schemas with the folders of their migrations, in the order in which they are applied.
const SCHEMAS: [(&str, &[&str]); 4] = [
    ("saga", &["saga"]),
    ("orders", &["messaging", "order"]),
    ("inventory", &["messaging", "inventory"]),
    ("payment", &["messaging", "payment"]),
];

const AUDITOR: &str = "
    do $$ begin
        create role auditor login password 'auditor';
    exception when duplicate_object then
    end $$;
    grant usage on schema saga, orders, inventory, payment to auditor;
    grant select on all tables in schema saga, orders, inventory, payment to auditor;";

/// A database of the calling test's own.
pub(crate) async fn database() -> Database {
    Database::from_template("console", prepare).await.expect("a database")
}

async fn prepare(url: String) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&url).await?;
    for (schema, folders) in SCHEMAS {
        run(&mut connection, format!("create schema {schema}; set search_path to {schema}")).await?;
        for folder in folders {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(folder);
            let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
            files.sort_by_key(std::fs::DirEntry::file_name);
            for file in files {
                run(&mut connection, std::fs::read_to_string(file.path())?).await?;
            }
        }
    }
    run(&mut connection, AUDITOR.to_owned()).await?;
    run(&mut connection, include_str!("sound_suite.sql").to_owned()).await?;
    Ok(connection.close().await?)
}

/// Runs statements of the test's own.
pub(crate) async fn run(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}
