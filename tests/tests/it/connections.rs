//! Database connections that open more slowly than a request waits for one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sqlx::postgres::PgPoolOptions;
use testkit::{Manner, Postgres, Proxy};
use tokio::task::JoinSet;

use crate::prelude::*;

const SLOW: Duration = Duration::from_millis(600);
const IMPATIENT: [(&str, &str); 2] = [("DATABASE_ACQUIRE_TIMEOUT", "500ms"), ("DATABASE_HTTP_POOL", "4")];
/// With those of the other pools.
const ALL: f64 = 17.0;

/// A link to PostgreSQL that passes nothing, and the URL through it.
async fn link(suite: &TestSuite) -> anyhow::Result<(Proxy, String)> {
    let url = suite.database.url_for("order_service");
    let (before, place) = url.rsplit_once(':').context("a URL without a port")?;
    let (port, database) = place.split_once('/').context("a URL without a database")?;
    let link = Proxy::start(port.parse()?).await?;
    link.behave(Manner::Shut);
    let url = format!("{before}:{}/{database}", link.port());
    Ok((link, url))
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_service_waits_for_a_slow_database_and_logs_why() -> Test {
    let suite = TestSuite::new().await?;
    let (link, url) = link(&suite).await?;
    let settings = [&IMPATIENT[..], &[("DATABASE_URL", url.as_str())]].concat();
    let mut order = Running::launch(&suite, ORDER, "order", &settings)?;
    let reports = async |order: &Running, why: &str| {
        let reason = order.client.unready("postgres").await?;
        ensure!(reason.contains(why), "{reason}");
        anyhow::Ok(())
    };
    eventually(async || reports(&order, "no connection can be opened").await).await?;
    link.behave(Manner::SlowToOpen(SLOW));
    eventually(async || reports(&order, "connections are open").await).await?;
    order.ready().await?;
    let log = order.process.log();
    for waiting in ["waiting for PostgreSQL at ", "waiting for all 4 http connections to PostgreSQL at "] {
        ensure!(log.contains(waiting), "{waiting}: {log}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn connections_are_opened_again_though_300_requests_wait() -> Test {
    let suite = TestSuite::new().await?;
    let (link, url) = link(&suite).await?;
    link.behave(Manner::Pass);
    let settings = [&IMPATIENT[..], &[("DATABASE_URL", url.as_str())]].concat();
    let mut order = Running::start(&suite, ORDER, &settings).await?;
    link.behave(Manner::Shut);
    eventually(async || order.client.get("/health/ready").await.is_ok_and(|answer| answer.status == 503)).await?;
    let (served, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut waiting = JoinSet::new();
    for _ in 0..300 {
        let (client, served, refused) = (order.client.clone(), Arc::clone(&served), Arc::clone(&refused));
        waiting.spawn(async move {
            loop {
                let answer = client.get("/api/products").await;
                let count = if answer.is_ok_and(|answer| answer.status == 200) { &served } else { &refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let more_than = async |count: &AtomicU64, some: u64| {
        let before = count.load(Ordering::Relaxed);
        eventually(async || count.load(Ordering::Relaxed) > before + some).await
    };
    more_than(&refused, 600).await?;
    link.behave(Manner::SlowToOpen(SLOW));
    more_than(&served, 0).await?;
    let open = |now: Scrape| now.sum("database_pool_connections", &[]);
    eventually(async || Scrape::of(&order.client).await.is_ok_and(|now| open(now) == Some(ALL))).await?;
    more_than(&served, 0).await?;
    order.ready().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_service_waits_for_an_unreadable_schema() -> Test {
    let suite = TestSuite::new().await?;
    let (link, url) = link(&suite).await?;
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_millis(200)).connect_lazy(&url)?;
    let expect = bootstrap::postgres::expect_migrations;
    ensure!(expect(&pool, "orders._migration", &order::MIGRATIONS, Duration::ZERO).await.is_err());
    let before = link.clients();
    let (expected, came) = tokio::join!(expect(&pool, "orders._migration", &order::MIGRATIONS, LIMIT), async {
        eventually(async || link.clients() > before).await?;
        link.behave(Manner::Pass);
        anyhow::Ok(())
    });
    came?;
    Ok(expected?)
}

/// As on an old primary after a failover.
#[suite_tests::test(unaudited = "nothing is ordered")]
async fn connections_to_a_read_only_server_are_replaced() -> Test {
    let server = Postgres::start().await?;
    let suite = TestSuite::with_server(&server, Tuning::default()).await?;
    let inventory = suite.start(INVENTORY).await?;
    let read_only = async |setting: &str| {
        suite.execute(format!("alter system set default_transaction_read_only = {setting}")).await?;
        suite.execute("select pg_reload_conf()").await
    };
    read_only("on").await?;
    let reason = async || inventory.client.unready("postgres").await.ok();
    eventually(async || reason().await.filter(|reason| reason == "no connection can be opened")).await?;
    read_only("off").await?;
    eventually(async || inventory.startup.readiness.is_ready()).await?;
    inventory.client.create_product("A", 100, 1).await?.expect(201)?;
    Ok(())
}
