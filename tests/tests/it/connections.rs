//! Connections to the database that open more slowly than anybody waits for one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use contracts::ORDER;
use sqlx::postgres::PgPoolOptions;
use suite_tests::{Door, Running, Stage};
use testkit::eventually;
use tokio::task::JoinSet;

use crate::Test;

/// Why no test of this file audits.
const UNAUDITED: &str = "nothing is ordered";

const LIMIT: Duration = Duration::from_secs(30);
const SLOW: Duration = Duration::from_millis(600);
const IMPATIENT: [(&str, &str); 2] = [("DATABASE_ACQUIRE_TIMEOUT", "500ms"), ("DATABASE_HTTP_POOL", "4")];

async fn door(stage: &Stage) -> anyhow::Result<Door> {
    Door::before(&stage.database.url_for("order_service")).await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_service_waits_for_a_slow_database_and_says_why() -> Test {
    let stage = Stage::new().await?;
    let door = door(&stage).await?;
    let settings = [&IMPATIENT[..], &[("DATABASE_URL", door.url.as_str())]].concat();
    let mut order = Running::launch(&stage, ORDER, "order", &settings)?;
    let says = async |order: &Running, why: &str| {
        let answer = order.client.get("/health/ready").await?;
        ensure!(answer.status == 503, "{answer:?}");
        let reason = answer.body["checks"]["postgres"]["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains(why), "{reason}");
        anyhow::Ok(())
    };
    eventually(LIMIT, async || says(&order, "no connection can be opened").await).await?;
    door.open(SLOW);
    eventually(LIMIT, async || says(&order, "connections are open").await).await?;
    order.ready().await?;
    let log = order.process.log();
    for waiting in ["waiting for PostgreSQL at ", "waiting for all 4 http connections to PostgreSQL at "] {
        ensure!(log.contains(waiting), "{waiting}: {log}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn connections_are_opened_again_though_300_requests_wait() -> Test {
    let stage = Stage::new().await?;
    let door = door(&stage).await?;
    door.open(Duration::ZERO);
    let settings = [&IMPATIENT[..], &[("DATABASE_URL", door.url.as_str())]].concat();
    let mut order = Running::start(&stage, ORDER, &settings).await?;
    door.shut();
    eventually(LIMIT, async || order.client.get("/health/ready").await.is_ok_and(|answer| answer.status == 503))
        .await?;
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
    let more = async |count: &AtomicU64| {
        let before = count.load(Ordering::Relaxed);
        eventually(LIMIT, async || count.load(Ordering::Relaxed) > before + 600).await
    };
    more(&refused).await?;
    door.open(SLOW);
    more(&served).await?;
    order.ready().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_schema_that_cannot_be_read_yet_is_waited_for() -> Test {
    let stage = Stage::new().await?;
    let door = door(&stage).await?;
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_millis(200)).connect_lazy(&door.url)?;
    let expect = bootstrap::postgres::expect_migrations;
    ensure!(expect(&pool, "orders._migration", &order::MIGRATIONS, Duration::ZERO).await.is_err());
    let before = door.turned_away();
    let (expected, came) = tokio::join!(expect(&pool, "orders._migration", &order::MIGRATIONS, LIMIT), async {
        eventually(LIMIT, async || door.turned_away() > before).await?;
        door.open(Duration::ZERO);
        anyhow::Ok(())
    });
    came?;
    Ok(expected?)
}
