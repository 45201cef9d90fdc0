//! Streams and consumers are created, re-created and trimmed; other programs' streams are not changed.

use async_nats::{
    Client,
    jetstream::{self, consumer::PullConsumer, stream},
};
use futures_util::StreamExt as _;
use messaging::topology::{Object, Topology, TopologyError};
use testkit::Nats;

use crate::house::{HOUSE, OPEN_DOOR};

const RANG: &str = "events.house.Rang";

fn house() -> Topology {
    let mut house = Topology::of([HOUSE], [&OPEN_DOOR.step]);
    house.stream.max_bytes = 100_000;
    house
}

async fn broker() -> (Nats, Client, jetstream::Context) {
    let nats = Nats::start().await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let js = jetstream::new(client.clone());
    (nats, client, js)
}

#[tokio::test]
async fn lost_streams_and_consumers_are_recreated() {
    let (_nats, client, js) = broker().await;
    assert_eq!(house().ensure(&client).await.unwrap().len(), 2);
    assert_eq!(house().restore(&client).await.unwrap(), []);
    js.delete_consumer_from_stream(OPEN_DOOR.consumer(), HOUSE.stream()).await.unwrap();
    assert!(matches!(house().restore(&client).await.unwrap()[..], [Object::Consumer(_)]));
    js.delete_stream(HOUSE.stream()).await.unwrap();
    assert_eq!(house().restore(&client).await.unwrap(), house().objects());
}

#[tokio::test]
async fn only_acknowledged_events_are_trimmed() {
    let (_nats, client, js) = broker().await;
    house().ensure(&client).await.unwrap();
    for _ in 0..90 {
        js.publish(RANG, vec![b' '; 1_000].into()).await.unwrap().await.unwrap();
    }
    assert_eq!(house().trim(&client).await.unwrap(), 0);
    let consumer: PullConsumer = js.get_consumer_from_stream(OPEN_DOOR.consumer(), HOUSE.stream()).await.unwrap();
    let mut rings = consumer.fetch().max_messages(20).messages().await.unwrap();
    while let Some(ring) = rings.next().await {
        ring.unwrap().double_ack().await.unwrap();
    }
    assert_eq!(house().trim(&client).await.unwrap(), 20);
}

#[tokio::test]
async fn a_stream_of_another_program_is_not_changed() {
    let (_nats, client, js) = broker().await;
    let subjects = vec!["house.lights".to_owned()];
    let theirs = stream::Config { name: HOUSE.stream(), subjects: subjects.clone(), ..Default::default() };
    js.create_stream(theirs).await.unwrap();
    let error = house().ensure(&client).await.unwrap_err();
    assert!(matches!(&error, TopologyError::Foreign { subjects: found, .. } if *found == subjects), "{error}");
    assert_eq!(js.get_stream(HOUSE.stream()).await.unwrap().cached_info().config.subjects, subjects);
}
