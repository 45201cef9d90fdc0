//! A database with a synchronous standby. A commit whose wait for the standby ends early is visible, though the standby lacks it.

use std::{str::FromStr, time::Duration};

use async_nats::jetstream;
use messaging::{Bus, Consumer, MessagingArgs, Outbox, Relay};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::{Manner, Postgres, Proxy, eventually};
use tokio_util::sync::CancellationToken;

use crate::house::{DUPLICATE_WINDOW, HOUSE, House};

const LIMIT: Duration = Duration::from_secs(30);

/// A primary, its standby, and the link between them.
struct Pair {
    // Dropped first: as long as it runs, dropping the house's database waits for the standby.
    primary: Postgres,
    standby: Postgres,
    link: Proxy,
    house: House,
}

impl Pair {
    async fn start() -> Self {
        let mut primary = Postgres::start().await.unwrap();
        let link = Proxy::start(primary.port()).await.unwrap();
        let standby = primary.standby(link.port()).await.unwrap();
        let house = House::on(&primary.server()).await;
        make_synchronous(&house.pool).await;
        Pair { primary, standby, link, house }
    }

    /// A session, other than `known`, whose transaction waits for the standby.
    async fn waiting(&self, known: Option<i32>) -> i32 {
        // Autovacuum's commits wait, too.
        let waiting = "select pid from pg_stat_activity
            where wait_event = 'SyncRep' and backend_type = 'client backend' and pid is distinct from $1";
        let wait = async || sqlx::query_scalar(waiting).bind(known).fetch_optional(&self.house.pool).await;
        eventually(LIMIT, wait).await.unwrap()
    }

    /// Ends a session whose commit waits for the standby, and returns it: its commit is visible.
    async fn end_wait(&self) -> i32 {
        let session = self.waiting(None).await;
        let terminate = sqlx::query("select pg_terminate_backend($1)").bind(session);
        terminate.execute(&self.house.pool).await.unwrap();
        session
    }

    /// Writes an event that no standby has.
    async fn write_ghost(&self) {
        self.link.behave(Manner::Silent);
        let house = self.house.clone();
        let ghost = tokio::spawn(async move { house.write("ghost").await });
        self.end_wait().await;
        ghost.await.unwrap().unwrap_err();
        assert_eq!(self.house.count("outbox").await, 1, "its session ended, and its commit is visible");
    }

    /// The house with the promoted standby.
    async fn promote(&self) -> House {
        let url = self.standby.server().url(self.house.database());
        let options = PgConnectOptions::from_str(&url).unwrap().options([("search_path", "house")]);
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
        sqlx::query("select pg_promote()").execute(&pool).await.unwrap();
        self.house.moved_to(pool)
    }
}

#[tokio::test]
async fn an_event_that_no_standby_has_is_not_published() {
    let mut pair = Pair::start().await;
    let house = pair.house.clone();
    // Its lease is renewed after the test: a renewal, too, waits for the standby.
    let settings = MessagingArgs { relay_lease: 10 * LIMIT, ..MessagingArgs::default() };
    let relay = tokio::spawn(Relay { settings, ..Relay::of(&house.outbox) }.run(CancellationToken::new()));
    house.write("friend").await.unwrap();
    eventually(LIMIT, async || house.count("outbox_published").await == 1).await.unwrap();

    pair.write_ghost().await;
    // The relay has read it, and waits before it publishes.
    pair.waiting(None).await;
    let published = house.streamed().await;

    relay.abort();
    pair.primary.stop_immediate().await.unwrap();
    let promoted = pair.promote().await;
    let kept = promoted.count("outbox").await + promoted.count("outbox_published").await;
    assert_eq!((kept, published), (1, 1), "events of the promoted standby, and of the stream");
}

#[tokio::test]
async fn a_relay_left_on_an_old_primary_publishes_nothing() {
    let pair = Pair::start().await;
    let house = &pair.house;
    let broker = Proxy::start(house.broker_port()).await.unwrap();
    let client = async_nats::connect(format!("nats://127.0.0.1:{}", broker.port())).await.unwrap();
    let left = Outbox::new(house.pool.clone(), Bus::new(client.clone(), HOUSE), house.metrics.clone());
    let left = tokio::spawn(Relay::of(&left).run(CancellationToken::new()));
    eventually(LIMIT, async || house.metrics.relay_active.get() == 1).await.unwrap();
    broker.behave(Manner::Silent);
    house.write("friend").await.unwrap();
    // Its message is on the way.
    eventually(LIMIT, async || house.metrics.broker_silent.get() == 1).await.unwrap();

    pair.link.behave(Manner::Silent);
    let promoted = pair.promote().await;
    // When the lease has expired.
    let take_over = async || {
        promoted.relay().await;
        promoted.count("outbox_published").await == 1
    };
    eventually(LIMIT, take_over).await.unwrap();
    promoted.write("neighbour").await.unwrap();
    promoted.relay().await;
    assert_eq!(house.streamed().await, 2);

    // The broker forgets the ids of the messages.
    tokio::time::sleep(2 * DUPLICATE_WINDOW).await;
    broker.heal();
    let last = jetstream::new(client).publish("events.house.Rang", "a message after it".into()).await.unwrap();
    assert_eq!(last.await.unwrap().sequence, 3, "nothing was stored between");
    // It cannot acquire the lease again, or does not get what it reads.
    pair.waiting(None).await;
    assert_eq!(house.streamed().await, 3);
    left.abort();
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_when_a_standby_has_its_effect() {
    let pair = Pair::start().await;
    let house = &pair.house;
    house.ring(&["friend"]).await;
    pair.link.behave(Manner::Silent);
    let consumer = tokio::spawn(Consumer::new(&house.outbox, house.step(), HOUSE).run(CancellationToken::new()));
    let first = pair.end_wait().await;
    // The event is delivered again, and its effect is visible.
    pair.waiting(Some(first)).await;
    assert_eq!((house.count("opened").await, house.unacknowledged().await), (1, 1));
    pair.link.heal();
    eventually(LIMIT, async || house.unacknowledged().await == 0).await.unwrap();
    assert_eq!(house.count("opened").await, 1);
    consumer.abort();
}

#[tokio::test]
async fn a_dead_letter_is_acknowledged_when_a_standby_has_it() {
    let pair = Pair::start().await;
    let house = &pair.house;
    let client = async_nats::connect(format!("nats://127.0.0.1:{}", house.broker_port())).await.unwrap();
    let unreadable = jetstream::new(client.clone()).publish("events.house.Rang", "no event".into()).await.unwrap();
    unreadable.await.unwrap();
    pair.link.behave(Manner::Silent);
    let consumer = tokio::spawn(Consumer::new(&house.outbox, house.step(), HOUSE).run(CancellationToken::new()));
    let first = pair.end_wait().await;
    // It is visible when it is to be recorded again.
    pair.waiting(Some(first)).await;
    assert_eq!((house.count("dead_letter").await, house.unacknowledged().await), (1, 1));
    pair.link.heal();
    eventually(LIMIT, async || house.unacknowledged().await == 0).await.unwrap();
    assert_eq!(house.count("dead_letter").await, 1);
    consumer.abort();
}

#[tokio::test]
async fn what_a_unit_of_work_has_only_read_is_replicated() {
    let pair = Pair::start().await;
    pair.write_ghost().await;
    let outbox = pair.house.outbox.clone();
    let repeated = tokio::spawn(async move {
        let mut work = outbox.begin().await?;
        let found: i64 = sqlx::query_scalar("select count(*) from outbox").fetch_one(work.conn()).await?;
        work.commit_read().await?;
        Ok::<_, sqlx::Error>(found)
    });
    pair.waiting(None).await;
    assert!(!repeated.is_finished());
    pair.link.heal();
    assert_eq!(repeated.await.unwrap().unwrap(), 1);
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
