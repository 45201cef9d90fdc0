//! The example runs.

use sqlx::PgPool;
use testkit::{Database, Nats, bin};
use tokio::process::Command;

#[tokio::test]
async fn the_handshake_is_completed() {
    let (database, nats) = (Database::empty().await.unwrap(), Nats::start().await.unwrap());
    let mut command = Command::new(bin("examples/handshake").unwrap());
    command.env("DATABASE_URL", database.admin_url()).env("NATS_URL", nats.url());
    let ended = command.output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let pool = PgPool::connect(&database.admin_url()).await.unwrap();
    let journal: Vec<String> =
        sqlx::query_scalar("select step from saga.saga_step order by position").fetch_all(&pool).await.unwrap();
    assert_eq!(journal, ["offer_hand", "take_hand", "shake_hand"]);
}
