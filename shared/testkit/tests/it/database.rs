use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use sqlx::{Connection, PgConnection};
use testkit::{Database, Postgres};

async fn with_a_table(url: String) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&url).await?;
    sqlx::query("create table apple as select 1 as id").execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

async fn apples(database: &Database) -> i64 {
    let mut connection = PgConnection::connect(&database.admin_url()).await.unwrap();
    sqlx::query_scalar("select count(*) from apple").fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn databases_of_one_template_share_nothing() {
    let postgres = Postgres::start().await.unwrap();
    let server = postgres.server();
    let prepared = AtomicUsize::new(0);
    let prepare = async |url| {
        prepared.fetch_add(1, Ordering::Relaxed);
        with_a_table(url).await
    };
    let (one, other) = tokio::try_join!(
        Database::from_template_on(&server, "apples", prepare),
        Database::from_template_on(&server, "apples", prepare)
    )
    .unwrap();
    assert_eq!(prepared.into_inner(), 1);

    let mut connection = PgConnection::connect(&one.admin_url()).await.unwrap();
    sqlx::query("delete from apple").execute(&mut connection).await.unwrap();
    assert_eq!((apples(&one).await, apples(&other).await), (0, 1));
}

#[tokio::test]
async fn a_template_that_could_not_be_prepared_is_prepared_again() {
    let postgres = Postgres::start().await.unwrap();
    let server = postgres.server();
    let failed = Database::from_template_on(&server, "apples", async |_| bail!("no apples today")).await;
    assert!(failed.is_err());
    let database = Database::from_template_on(&server, "apples", with_a_table).await.unwrap();
    assert_eq!(apples(&database).await, 1);
}

#[tokio::test]
async fn a_database_is_dropped_with_its_test() {
    let database = Database::empty().await.unwrap();
    let other = Database::empty().await.unwrap();
    let name = database.name().to_owned();
    let _held_open = PgConnection::connect(&database.admin_url()).await.unwrap();
    drop(database);
    let mut connection = PgConnection::connect(&other.admin_url()).await.unwrap();
    let query = sqlx::query_scalar("select exists (select from pg_database where datname = $1)").bind(name);
    let exists: bool = query.fetch_one(&mut connection).await.unwrap();
    assert!(!exists);
}
