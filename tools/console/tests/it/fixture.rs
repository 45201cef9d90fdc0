//! A database with the suite's tables and a few orders in it, all of them sound.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::Database;

pub(crate) async fn database() -> Database {
    Database::from_template("console", prepare).await.expect("a database")
}

async fn prepare(url: String) -> anyhow::Result<()> {
    provision::database::prepare(url.clone()).await?;
    let mut connection = PgConnection::connect(&url).await?;
    run(&mut connection, include_str!("sound_suite.sql").to_owned()).await?;
    Ok(connection.close().await?)
}

pub(crate) async fn run(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}
