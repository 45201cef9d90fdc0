//! Committed events are published, and no others.

use std::{path::Path, time::Duration};

use async_nats::jetstream;
use messaging::{Bus, Context, MessagingArgs, Metrics, Outbox, PublishError, Relay, outbox, topology};
use testkit::{Manner, Nats, Postgres, Proxy, eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::house::{DUPLICATE_WINDOW, HOUSE, House, OPEN_DOOR, Rang};

#[tokio::test]
async fn a_committed_event_is_published_once() {
    let house = House::start().await;
    house.ring(&["friend", "neighbour"]).await;
    assert_eq!((house.count("outbox").await, house.count("outbox_published").await), (0, 2));
    house.relay().await;
    assert_eq!(house.streamed().await, 2);
}

#[tokio::test]
async fn a_rolled_back_event_is_never_published() {
    let house = House::start().await;
    let mut work = house.outbox.begin().await.unwrap();
    let ring = Rang { door: Uuid::now_v7(), by: "friend".to_owned() };
    work.publish_side_event(&Context::background("test"), 1, &ring).unwrap();
    work.rollback().await.unwrap();
    house.relay().await;
    assert_eq!((house.count("outbox").await, house.streamed().await), (0, 0));
}

#[tokio::test]
async fn a_step_publishes_only_the_events_it_lists() {
    let house = House::start().await;
    let mut work = house.outbox.begin().await.unwrap();
    let ring = Rang { door: Uuid::now_v7(), by: "friend".to_owned() };
    let refused = work.publish(&OPEN_DOOR, &Context::background("test"), 1, &ring);
    assert!(matches!(refused, Err(PublishError::NotEmitted { step: "open_door", event: "Rang" })), "{refused:?}");
}

#[tokio::test]
async fn an_event_larger_than_the_broker_accepts_is_parked_at_once() {
    let house = House::start().await;
    let limited = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small_broker.conf"));
    let broker = Nats::with_config(limited, &[] as &[(&str, &str)]).await.unwrap();
    let client = async_nats::connect(broker.url()).await.unwrap();
    topology::ensure_stream(&jetstream::new(client.clone()), HOUSE, &Default::default()).await.unwrap();
    let outbox = Outbox::new(house.pool.clone(), Bus::new(client, HOUSE), house.metrics.clone());
    for by in ["friend", &"x".repeat(2_000), "neighbour"] {
        house.write(by).await.unwrap();
    }
    Relay::of(&outbox).run_once().await.unwrap();
    assert_eq!((house.count("outbox").await, house.count("outbox_published").await), (1, 2));
    let parked = outbox::list(&house.pool, Some("PARKED"), None, 10).await.unwrap().remove(0);
    let why = parked.last_error.unwrap();
    assert!(parked.attempts == 1 && why.contains("is larger than the broker accepts"), "{why}");
}

/// The relay's move waits for no disk (decision 96).
#[tokio::test]
async fn a_move_that_a_crash_undoes_is_repeated() {
    const LIMIT: Duration = Duration::from_secs(30);
    // What waits for no disk is written ten seconds later, or with the next commit that waits.
    let mut server = Postgres::with_settings(&[("wal_writer_delay", "10s")]).await.unwrap();
    let house = House::on(&server.server()).await;
    // Its lease is not renewed meanwhile, because a renewal waits.
    let settings = MessagingArgs { relay_lease: 10 * LIMIT, ..MessagingArgs::default() };
    let relay = Relay { settings, ..Relay::of(&house.outbox) };
    let mut events = 0;
    // Unless the ten seconds were just over, the first crash undoes a move.
    let undone = async {
        loop {
            let running = tokio::spawn(relay.clone().run(CancellationToken::new()));
            house.write("friend").await.unwrap();
            events += 1;
            eventually(LIMIT, async || house.count("outbox_published").await == events).await.unwrap();
            server.stop_immediate().await.unwrap();
            running.abort();
            server.start_again().await.unwrap();
            if house.count("outbox").await == 1 {
                break;
            }
        }
    };
    tokio::time::timeout(3 * LIMIT, undone).await.unwrap();
    assert_eq!(house.count("outbox_published").await, events - 1);

    // After the broker has forgotten the event's id.
    tokio::time::sleep(2 * DUPLICATE_WINDOW).await;
    relay.run_once().await.unwrap();
    assert_eq!((house.count("outbox").await, house.count("outbox_published").await), (0, events));
    assert_eq!(house.streamed().await, events.unsigned_abs() + 1);
    house.consume().await;
    assert_eq!(house.count("opened").await, events);
}

/// A server without JetStream stands for one that lost the others: it keeps its clients.
#[tokio::test]
async fn a_relay_leaves_a_server_that_lost_the_others() {
    let house = House::start().await;
    let lost = Nats::with_config(Path::new("/dev/null"), &[] as &[(&str, &str)]).await.unwrap();
    let client = async_nats::connect(lost.url()).await.unwrap();
    let servers = [lost.url(), format!("nats://127.0.0.1:{}", house.broker_port())];
    client.set_server_pool(servers.each_ref().map(String::as_str).as_slice()).await.unwrap();
    let outbox = Outbox::new(house.pool.clone(), Bus::new(client, HOUSE), house.metrics.clone());
    let relay = tokio::spawn(Relay::of(&outbox).run(CancellationToken::new()));
    house.write("friend").await.unwrap();
    eventually(Duration::from_secs(60), async || house.streamed().await == 1).await.unwrap();
    relay.abort();
}

/// Events of one aggregate take a round trip each, and a hundred of them longer than the lease.
#[tokio::test]
async fn relays_on_a_slow_link_do_not_replace_each_other() {
    let house = House::start().await;
    let (door, mut work) = (Uuid::now_v7(), house.outbox.begin().await.unwrap());
    for sequence in 1..=200 {
        let ring = Rang { door, by: "friend".to_owned() };
        work.publish_side_event(&Context::background("test"), sequence, &ring).unwrap();
    }
    work.commit().await.unwrap();
    let link = Proxy::start(house.broker_port()).await.unwrap();
    link.behave(Manner::Latency(Duration::from_millis(10)));
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let client = async_nats::connect(format!("nats://127.0.0.1:{}", link.port())).await.unwrap();
        let metrics = Metrics::default();
        let outbox = Outbox::new(house.pool.clone(), Bus::new(client, HOUSE), metrics.clone());
        replicas.push((metrics, tokio::spawn(Relay::of(&outbox).run(CancellationToken::new()))));
    }
    eventually(Duration::from_secs(30), async || house.count("outbox_published").await == 200).await.unwrap();
    let takeovers: u64 = replicas.iter().map(|(metrics, _)| metrics.relay_takeovers.get()).sum();
    assert!(takeovers <= 3, "{takeovers} takeovers");
    replicas.into_iter().for_each(|(_, relay)| relay.abort());
}
