//! Two events: a bell rings, and a step opens the door.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream;
use messaging::{
    Batch, Bus, Consumer, Context, Faults, Metrics, Outbox, Relay, StepError, StepResult, Subscription,
    dead_letter::{Batches, Replays},
    subscribe, topology,
};
use saga::{Kind, Service, StepOn};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::{Database, Nats, Server, eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const HOUSE: Service = Service("house");
/// The shortest that the broker accepts: duplicates are recognised without it.
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_millis(100);
saga::event!(Rang { door: Uuid, by: String }, "door" by [HOUSE]);
saga::event!(Opened { door: Uuid }, "door" by [HOUSE]);

pub(crate) static OPEN_DOOR: StepOn<Rang> =
    StepOn::new(1, "open_door", HOUSE, &[<Opened as saga::Event>::TYPE], Kind::Pivot);

/// Opens to friends; not to strangers; to burglars only if the alarm is off.
async fn open_door(house: House, batch: Batch<Rang>) -> StepResult {
    let (mut work, rings) = house.outbox.claim(batch).await?;
    for ring in rings {
        match ring.event.by.as_str() {
            "burglar" if house.alarm.load(Ordering::Relaxed) => return Err(StepError::Poison("a burglar".into())),
            "stranger" => {
                work.refused_by_state("a stranger");
                continue;
            }
            _ => {}
        }
        let opened = sqlx::query("insert into opened (door) values ($1)").bind(ring.event.door);
        opened.execute(work.conn()).await?;
        work.publish(&OPEN_DOOR, &ring.meta.context(), 2, &Opened { door: ring.event.door })?;
    }
    work.commit().await
}

#[derive(Clone)]
pub(crate) struct House {
    pub(crate) outbox: Outbox,
    pub(crate) pool: PgPool,
    pub(crate) alarm: Arc<AtomicBool>,
    pub(crate) metrics: Metrics,
    jetstream: jetstream::Context,
    servers: Arc<(Database, Nats)>,
}

impl House {
    pub(crate) async fn start() -> Self {
        House::with(Database::from_template("house", make_tables).await.unwrap()).await
    }

    /// With a database of this server.
    pub(crate) async fn on(server: &Server) -> Self {
        House::with(Database::from_template_on(server, "house", make_tables).await.unwrap()).await
    }

    async fn with(database: Database) -> Self {
        let nats = Nats::start().await.unwrap();
        let client = async_nats::connect(nats.url()).await.unwrap();
        let jetstream = jetstream::new(client.clone());
        let stream = topology::StreamSettings { duplicate_window: DUPLICATE_WINDOW, ..Default::default() };
        topology::ensure_stream(&jetstream, HOUSE, &stream).await.unwrap();
        topology::ensure_consumer(&jetstream, &OPEN_DOOR, HOUSE, &Default::default()).await.unwrap();
        let options = PgConnectOptions::from_str(&database.admin_url()).unwrap().options([("search_path", "house")]);
        let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
        let metrics = Metrics::default();
        let outbox = Outbox::new(pool.clone(), Bus::new(client, HOUSE), metrics.clone());
        let alarm = Arc::new(AtomicBool::new(true));
        House { outbox, pool, alarm, metrics, jetstream, servers: Arc::new((database, nats)) }
    }

    /// Rings once for each visitor, in one transaction, and publishes the events; returns their ids.
    pub(crate) async fn ring(&self, visitors: &[&str]) -> Vec<Uuid> {
        let mut work = self.outbox.begin().await.unwrap();
        let rings = visitors.iter().map(|by| {
            let ring = Rang { door: Uuid::now_v7(), by: (*by).to_owned() };
            work.publish_side_event(&Context::background("test"), 1, &ring).unwrap()
        });
        let ids = rings.collect();
        work.commit().await.unwrap();
        self.relay().await;
        ids
    }

    /// Writes an event for a relay to publish.
    pub(crate) async fn write(&self, by: &str) -> Result<(), StepError> {
        let mut work = self.outbox.begin().await?;
        let ring = Rang { door: Uuid::now_v7(), by: by.to_owned() };
        work.publish_side_event(&Context::background("test"), 1, &ring)?;
        work.commit().await?;
        Ok(())
    }

    /// Publishes pending events.
    pub(crate) async fn relay(&self) {
        Relay::of(&self.outbox).run_once().await.unwrap();
    }

    pub(crate) fn step(&self) -> Subscription {
        subscribe(self, &OPEN_DOOR, open_door)
    }

    /// Consumes until each delivery is acknowledged.
    pub(crate) async fn consume(&self) {
        let stop = CancellationToken::new();
        let running = tokio::spawn(Consumer::new(&self.outbox, self.step(), HOUSE).run(stop.clone()));
        eventually(Duration::from_secs(30), async || self.unacknowledged().await == 0).await.unwrap();
        stop.cancel();
        running.await.unwrap();
    }

    /// How many events the consumer has not acknowledged.
    pub(crate) async fn unacknowledged(&self) -> u64 {
        let info = self.consumer().await;
        info.num_pending + info.num_ack_pending as u64
    }

    pub(crate) async fn consumer(&self) -> jetstream::consumer::Info {
        let consumer = self.jetstream.get_consumer_from_stream(OPEN_DOOR.consumer(), HOUSE.stream()).await;
        let consumer: jetstream::consumer::PullConsumer = consumer.unwrap();
        consumer.cached_info().clone()
    }

    pub(crate) fn replays(&self) -> Replays {
        Replays {
            pool: self.pool.clone(),
            subscriptions: [self.step()].into(),
            batches: Batches::new(CancellationToken::new()),
            metrics: self.metrics.clone(),
            faults: Faults::none(),
        }
    }

    pub(crate) async fn count(&self, table: &'static str) -> i64 {
        let query = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
        sqlx::query_scalar(query).fetch_one(&self.pool).await.unwrap()
    }

    /// The database's name.
    pub(crate) fn database(&self) -> &str {
        self.servers.0.name()
    }

    /// The same house with another database.
    pub(crate) fn moved_to(&self, pool: PgPool) -> Self {
        House { outbox: self.outbox.on(pool.clone()), pool, ..self.clone() }
    }

    /// Another replica: the same database and stream, with a connection to the broker and metrics of its own.
    pub(crate) async fn replica(&self) -> Self {
        let client = async_nats::connect(self.servers.1.url()).await.unwrap();
        let metrics = Metrics::default();
        House {
            outbox: Outbox::new(self.pool.clone(), Bus::new(client, HOUSE), metrics.clone()),
            metrics,
            ..self.clone()
        }
    }

    pub(crate) fn broker_port(&self) -> u16 {
        self.servers.1.port()
    }

    /// How many messages the stream has.
    pub(crate) async fn streamed(&self) -> u64 {
        self.jetstream.get_stream(HOUSE.stream()).await.unwrap().cached_info().state.messages
    }
}

async fn make_tables(url: String) -> anyhow::Result<()> {
    let options = PgConnectOptions::from_str(&url)?;
    messaging::migrate(&options, "house").await?;
    let pool = PgPool::connect_with(options).await?;
    sqlx::query("create table house.opened (door uuid not null)").execute(&pool).await?;
    pool.close().await;
    Ok(())
}
