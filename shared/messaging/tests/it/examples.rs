//! The examples run, and are as short as the documentation says.

use std::str::FromStr;

use sqlx::{PgPool, postgres::PgConnectOptions};
use testkit::{Database, Nats, bin};
use tokio::process::Command;

async fn run(example: &str) -> (PgPool, Database) {
    let (database, nats) = (Database::empty().await.unwrap(), Nats::start().await.unwrap());
    let mut command = Command::new(bin(&format!("examples/{example}")).unwrap());
    command.env("DATABASE_URL", database.admin_url()).env("NATS_URL", nats.url());
    let ended = command.output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let pool = PgPool::connect_with(PgConnectOptions::from_str(&database.admin_url()).unwrap()).await.unwrap();
    (pool, database)
}

/// Without comments, attributes and empty lines.
fn lines(source: &str) -> usize {
    source
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("#!"))
        .count()
}

async fn count(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn the_outbox_alone_takes_twenty_lines() {
    assert!(lines(include_str!("../../examples/outbox.rs")) <= 20);
    let (pool, _database) = run("outbox").await;
    assert_eq!(count(&pool, "select count(*) from shop.outbox_published").await, 1);
    assert_eq!(count(&pool, "select count(*) from shop.outbox").await, 0);
}

#[tokio::test]
async fn the_doorbell_counts_each_ring_once() {
    let (pool, _database) = run("doorbell").await;
    assert_eq!(count(&pool, "select count(*) from house.ring").await, 3);
    assert_eq!(count(&pool, "select count(*) from house.inbox").await, 3);
}
