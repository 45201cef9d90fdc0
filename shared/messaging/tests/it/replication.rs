//! A database with a synchronous standby. A commit whose wait for the standby ends early is visible, though the standby lacks it.

use std::time::Duration;

use messaging::{MessagingArgs, Relay};
use sqlx::{Connection, PgConnection, PgPool};
use testkit::{Manner, Postgres, Proxy, eventually};
use tokio_util::sync::CancellationToken;

use crate::house::House;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_event_that_no_standby_has_is_not_published() {
    let mut primary = Postgres::start().await.unwrap();
    let link = Proxy::start(primary.port()).await.unwrap();
    let standby = primary.standby(link.port()).await.unwrap();
    let house = House::on(&primary.server()).await;
    make_synchronous(&house.pool).await;
    // Its lease is renewed after the test: a renewal, too, waits for the standby.
    let settings = MessagingArgs { relay_lease: 10 * LIMIT, ..MessagingArgs::default() };
    let relay = tokio::spawn(Relay { settings, ..Relay::of(&house.outbox) }.run(CancellationToken::new()));
    house.write("friend").await.unwrap();
    eventually(LIMIT, async || house.count("outbox_published").await == 1).await.unwrap();

    link.behave(Manner::Silent);
    let ghost = tokio::spawn({
        let house = house.clone();
        async move { house.write("ghost").await }
    });
    let waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'";
    let wait = async || sqlx::query_scalar::<_, i32>(waiting).fetch_optional(&house.pool).await;
    let writer = eventually(LIMIT, wait).await.unwrap();
    let terminate = sqlx::query("select pg_terminate_backend($1)").bind(writer);
    terminate.execute(&house.pool).await.unwrap();
    ghost.await.unwrap().unwrap_err();
    assert_eq!(house.count("outbox").await, 1, "its session ended, and its commit is visible");
    // The relay has read it, and waits before it publishes; or has published it, and waits to record that.
    eventually(LIMIT, wait).await.unwrap();
    let published = house.streamed().await;

    relay.abort();
    primary.stop_immediate().await.unwrap();
    let mut promoted = PgConnection::connect(&standby.server().url(house.database())).await.unwrap();
    sqlx::query("select pg_promote()").execute(&mut promoted).await.unwrap();
    let kept = "select (select count(*) from house.outbox) + (select count(*) from house.outbox_published)";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(&mut promoted).await.unwrap();
    assert_eq!((kept, published), (1, 1), "events of the promoted standby, and of the stream");
}

/// From now on each commit waits for the standby.
async fn make_synchronous(pool: &PgPool) {
    for statement in ["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(pool).await.unwrap();
    }
    let synchronous = async || -> anyhow::Result<bool> {
        let synchronous = "select count(*) > 0 from pg_stat_replication where sync_state = 'sync'";
        Ok(sqlx::query_scalar(synchronous).fetch_one(pool).await?)
    };
    eventually(LIMIT, synchronous).await.unwrap();
}
