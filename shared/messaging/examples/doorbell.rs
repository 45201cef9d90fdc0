//! From a transaction to an effect: a bell rings, and a step counts each ring once, however often its event is delivered.
//! Requires DATABASE_URL and NATS_URL.
#![allow(clippy::disallowed_methods, reason = "an example reads the addresses of its servers from the environment")]

use std::time::Duration;

use messaging::{Batch, Bus, Consumer, Context, Metrics, Outbox, Relay, StepResult, subscribe, topology::Topology};
use saga::{Kind, Service, StepOn};
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const HOUSE: Service = Service("house");
saga::event!(Rang { door: Uuid }, "door" by [HOUSE]);
static COUNT_RING: StepOn<Rang> = StepOn::new(1, "count_ring", HOUSE, &[], Kind::Projection);

/// Inbox claim, effect and commit are one transaction. The claim skips events that were processed before.
async fn count_ring(house: Outbox, batch: Batch<Rang>) -> StepResult {
    let (mut work, rings) = house.claim(batch).await?;
    for ring in rings {
        let insert = sqlx::query("insert into ring (door) values ($1)");
        insert.bind(ring.event.door).execute(work.conn()).await?;
    }
    work.commit().await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    messaging::migrate(&database, "house").await?;
    let pool = PgPool::connect_with(database.options([("search_path", "house")])).await?;
    sqlx::query("create table if not exists ring (door uuid)").execute(&pool).await?;
    let nats = async_nats::connect(std::env::var("NATS_URL")?).await?;
    Topology::of([HOUSE], [&COUNT_RING.step]).ensure(&nats).await?;

    let (house, stop) =
        (Outbox::new(pool.clone(), Bus::new(nats, HOUSE), Metrics::default()), CancellationToken::new());
    let relay = tokio::spawn(Relay::of(&house).run(stop.clone()));
    let consumer = Consumer::new(&house, subscribe(&house, &COUNT_RING, count_ring), HOUSE);
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    let (door, mut rings) = (Uuid::now_v7(), 0_i64);
    for ring in 1..=3 {
        let mut work = house.begin().await?;
        work.publish_side_event(&Context::background(format!("ring {ring}")), ring, &Rang { door })?;
        work.commit().await?;
    }
    let mut look = tokio::time::interval(Duration::from_millis(10));
    while rings < 3 {
        look.tick().await;
        let count = sqlx::query_scalar("select count(*) from ring where door = $1").bind(door);
        rings = count.fetch_one(&pool).await?;
    }
    stop.cancel();
    println!("the bell was heard {rings} times");
    Ok(tokio::try_join!(relay, consumer).map(|_| ())?)
}
