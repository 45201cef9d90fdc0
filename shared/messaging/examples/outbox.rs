//! The outbox alone: committed events are published. Requires DATABASE_URL and NATS_URL.
#![allow(clippy::disallowed_methods, reason = "an example reads the addresses of its servers from the environment")]

use messaging::{Bus, Context, Metrics, Outbox, Relay, topology};
use sqlx::{PgPool, postgres::PgConnectOptions};
use uuid::Uuid;

const SHOP: saga::Service = saga::Service("shop");
saga::event!(Sold { sale: Uuid }, "sale" by [SHOP]);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    messaging::migrate(&database, "shop").await?;
    let nats = async_nats::connect(std::env::var("NATS_URL")?).await?;
    topology::ensure_stream(&async_nats::jetstream::new(nats.clone()), SHOP, &Default::default()).await?;
    let pool = PgPool::connect_with(database.options([("search_path", "shop")])).await?;
    let outbox = Outbox::new(pool, Bus::new(nats, SHOP), Metrics::default());

    let mut work = outbox.begin().await?;
    sqlx::query("create table if not exists sale (sold_at timestamptz default now())").execute(work.conn()).await?;
    work.publish_side_event(&Context::background("till 1"), 1, &Sold { sale: Uuid::now_v7() })?;
    work.commit().await?;
    Ok(Relay::of(&outbox).run_once().await?)
}
