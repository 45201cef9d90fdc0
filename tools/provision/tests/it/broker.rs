//! Streams and durable consumers: created once, corrected, restored.

use std::time::Duration;

use async_nats::{
    Client,
    jetstream::{
        self, Context,
        consumer::{Consumer, pull},
        stream::StorageType,
    },
};
use futures_util::{StreamExt, TryStreamExt};
use messaging::topology::{Ensured, Object};
use provision::broker::{self, Access, topology};
use testkit::{Nats, Store, eventually, free_port};

use crate::guarded_nats;

const TIMEOUT: Duration = Duration::from_secs(10);
const ANY_STREAM: Object = Object::Stream(contracts::ORDER);

#[tokio::test]
async fn everything_is_created_once_and_a_second_run_changes_nothing() {
    let (_nats, client, _) = provisioned().await;
    let js = jetstream::new(client.clone());
    for service in contracts::SERVICES {
        let stream = js.get_stream(service.stream()).await.unwrap();
        assert_eq!(stream.cached_info().config.subjects, [format!("events.{service}.>")]);
    }
    for wanted in contracts::consumers() {
        let consumer = consumer(&js, wanted).await;
        let event = wanted.step.consumes().unwrap();
        assert_eq!(consumer.cached_info().config.filter_subject, event.subject(wanted.publisher));
    }
    assert_eq!(broker::provision(&client, &topology()).await.unwrap(), []);
    assert_eq!(topology().restore(&client).await.unwrap(), []);
}

#[tokio::test]
async fn other_settings_are_applied_and_consumers_keep_their_position() {
    let (_nats, client, js) = provisioned().await;
    let reserve_stock = contracts::consumers()[0];
    let subject = reserve_stock.step.consumes().unwrap().subject(reserve_stock.publisher);
    js.publish(subject, "{}".into()).await.unwrap().await.unwrap();
    let message = next_message(&consumer(&js, reserve_stock).await).await;
    message.double_ack().await.unwrap();

    let mut settings = topology();
    settings.stream.max_bytes = 1 << 20;
    settings.stream.max_age = Duration::from_secs(3600);
    settings.consumer.max_ack_pending = 17;
    settings.consumer.ack_wait = Duration::from_secs(5);
    assert_eq!(broker::provision(&client, &settings).await.unwrap().len(), topology().objects().len());

    let stream = js.get_stream("ORDER").await.unwrap();
    assert_eq!(stream.cached_info().config.max_bytes, 1 << 20);
    assert_eq!(stream.cached_info().state.messages, 1);
    let after = consumer(&js, reserve_stock).await;
    assert_eq!(after.cached_info().config.max_ack_pending, 17);
    assert_eq!(after.cached_info().ack_floor.stream_sequence, 1);
}

#[tokio::test]
async fn a_newer_builds_consumer_is_deleted_unless_it_is_in_use() {
    let (_nats, client, js) = provisioned().await;
    let stream = js.get_stream("ORDER").await.unwrap();
    for name in ["inventory-obsolete", "inventory-in_use", "external-consumer"] {
        let durable = pull::Config { durable_name: Some(name.to_owned()), ..Default::default() };
        stream.create_consumer(durable).await.unwrap();
    }
    let in_use: Consumer<pull::Config> = stream.get_consumer("inventory-in_use").await.unwrap();
    let _pulling = tokio::spawn(async move { in_use.messages().await.unwrap().next().await.is_some() });
    let pulls = async || stream.consumer_info("inventory-in_use").await.unwrap().num_waiting == 1;
    eventually(TIMEOUT, pulls).await.unwrap();
    assert_eq!(broker::provision(&client, &topology()).await.unwrap(), []);
    let names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
    assert!(!names.contains(&"inventory-obsolete".to_owned()), "{names:?}");
    assert!(
        ["inventory-in_use", "external-consumer"].iter().all(|name| names.contains(&(*name).to_owned())),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_stream_that_cannot_be_changed_is_an_error() {
    let (_nats, client, js) = provisioned().await;
    js.delete_stream("ORDER").await.unwrap();
    let wrong = messaging::topology::stream_config(contracts::ORDER, &topology().stream);
    js.create_stream(jetstream::stream::Config { storage: StorageType::Memory, ..wrong }).await.unwrap();
    let error = broker::provision(&client, &topology()).await.unwrap_err();
    let error = format!("{:#}", anyhow::Error::new(error));
    assert!(error.contains("did not change stream ORDER") && error.contains("storage"), "{error}");
}

#[tokio::test]
async fn missing_objects_are_restored_and_others_are_not_changed() {
    let (_nats, client, js) = provisioned().await;
    let mut changed = js.get_stream("PAYMENT").await.unwrap().cached_info().config.clone();
    changed.max_bytes = 1 << 20;
    js.update_stream(changed).await.unwrap();
    js.delete_stream("ORDER").await.unwrap();
    js.delete_consumer_from_stream("payment-process_payment", "INVENTORY").await.unwrap();

    let gone = |object: &Object| match object {
        Object::Stream(service) => service.stream() == "ORDER",
        Object::Consumer(c) => c.publisher.stream() == "ORDER" || c.step.name == "process_payment",
    };
    let restored = topology().restore(&client).await.unwrap();
    assert_eq!(restored.len(), topology().objects().iter().filter(|object| gone(object)).count());
    assert!(restored.iter().all(gone) && restored.contains(&ANY_STREAM));
    for wanted in contracts::consumers() {
        consumer(&js, wanted).await;
    }
    assert_eq!(js.get_stream("PAYMENT").await.unwrap().cached_info().config.max_bytes, 1 << 20);
}

#[tokio::test]
async fn a_full_stream_is_trimmed_to_what_its_consumers_need() {
    let nats = Nats::start().await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let js = jetstream::new(client.clone());
    let mut settings = topology();
    settings.stream.max_bytes = 100_000;
    broker::provision(&client, &settings).await.unwrap();
    let reserve_stock = contracts::consumers().into_iter().find(|c| c.step.name == "reserve_stock").unwrap();
    let subject = reserve_stock.step.consumes().unwrap().subject(contracts::ORDER);
    let fill = async || {
        let mut stored = 0;
        while js.publish(subject.clone(), vec![b' '; 1_000].into()).await.unwrap().await.is_ok() {
            stored += 1;
        }
        stored
    };
    let first = async || js.get_stream("ORDER").await.unwrap().cached_info().state.first_sequence;

    assert!(fill().await > 80);
    assert_eq!(topology().trim(&client).await.unwrap(), 0, "no event is acknowledged");
    for _ in 0..10 {
        next_message(&consumer(&js, reserve_stock).await).await.double_ack().await.unwrap();
    }
    assert_eq!(topology().trim(&client).await.unwrap(), 10);
    assert_eq!(topology().trim(&client).await.unwrap(), 0);
    assert_eq!(first().await, 11, "the eleventh is needed");

    assert_eq!(fill().await, 10);
    let eleventh = next_message(&consumer(&js, reserve_stock).await).await;
    assert_eq!(eleventh.info().unwrap().stream_sequence, 11);
    eleventh.double_ack().await.unwrap();
    loop {
        let last = next_message(&consumer(&js, reserve_stock).await).await;
        last.double_ack().await.unwrap();
        if last.info().unwrap().pending == 0 {
            break;
        }
    }
    let removed = topology().trim(&client).await.unwrap();
    assert!((35..55).contains(&removed), "{removed}, of which half a stream is left");
    assert_eq!(topology().trim(&client).await.unwrap(), 0, "the rest is kept while there is space");
    assert_eq!(first().await, 11 + removed);
    assert!(fill().await >= removed);
}

#[tokio::test]
async fn a_restored_or_idle_consumer_does_not_prevent_trimming() {
    let (_nats, client, js) = provisioned().await;
    let mut small = topology();
    small.stream.max_bytes = 100_000;
    broker::provision(&client, &small).await.unwrap();
    // No step consumes this event.
    for _ in 0..80 {
        js.publish("events.payment.PaymentRefunded", vec![b' '; 1_000].into()).await.unwrap().await.unwrap();
    }
    js.delete_consumer_from_stream("order-confirm_order", "PAYMENT").await.unwrap();
    assert_eq!(topology().trim(&client).await.unwrap(), 0, "the acknowledgements of the missing consumer are unknown");
    small.restore(&client).await.unwrap();
    assert!(topology().trim(&client).await.unwrap() > 20);
}

#[tokio::test]
async fn an_earlier_versions_stream_with_deny_purge_is_recreated() {
    let (_nats, client, js) = provisioned().await;
    let mut earlier = js.get_stream("ORDER").await.unwrap().cached_info().config.clone();
    earlier.deny_purge = true;
    js.update_stream(earlier).await.unwrap();
    let done = broker::provision(&client, &topology()).await.unwrap();
    assert_eq!(done[0], (ANY_STREAM, Ensured::Created));
    assert!(
        done.len() > 1
            && done.iter().all(|(object, _)| match object {
                Object::Stream(service) => service.stream() == "ORDER",
                Object::Consumer(c) => c.publisher.stream() == "ORDER",
            })
    );
    assert!(!js.get_stream("ORDER").await.unwrap().cached_info().config.deny_purge);
}

#[tokio::test]
async fn a_broker_that_comes_back_empty_is_provisioned_again() {
    let mut nats = guarded_nats().await;
    let connection = broker::connect(&access(&nats, "provision"), TIMEOUT).await.unwrap();
    broker::provision(&connection.client, &topology()).await.unwrap();
    let js = jetstream::new(connection.client.clone());
    let reconciler = tokio::spawn(async move { broker::keep(&connection, &topology()).await });
    nats.wipe().await.unwrap();
    eventually(TIMEOUT, async || {
        for wanted in contracts::consumers() {
            let found =
                js.get_consumer_from_stream::<pull::Config, _, _>(wanted.step.consumer(), wanted.publisher.stream());
            found.await?;
        }
        Ok::<bool, async_nats::jetstream::stream::ConsumerError>(true)
    })
    .await
    .unwrap();
    reconciler.abort();
}

#[tokio::test]
async fn a_consumer_of_a_rolled_back_stream_is_reset() {
    let (mut nats, client, js) = provisioned().await;
    let reserve_stock = contracts::consumers()[0];
    let subject = reserve_stock.step.consumes().unwrap().subject(reserve_stock.publisher);
    let older = nats.keep_copy().await.unwrap();
    let publish = async || {
        eventually(TIMEOUT, async || {
            Ok::<_, async_nats::Error>(js.publish(subject.clone(), "{}".into()).await?.await.is_ok())
        })
        .await
        .unwrap();
    };
    publish().await;
    next_message(&consumer(&js, reserve_stock).await).await.double_ack().await.unwrap();
    // Stopping persists the positions of the consumers.
    nats.stop().await.unwrap();
    nats.roll_back(&older, Store::PowerCut).await.unwrap();
    eventually(TIMEOUT, async || topology().restore(&client).await.is_ok()).await.unwrap();
    publish().await;
    next_message(&consumer(&js, reserve_stock).await).await.double_ack().await.unwrap();
}

#[tokio::test]
async fn consumers_with_a_corrupt_state_are_recreated() {
    let (mut nats, client, js) = provisioned().await;
    let older = nats.keep_copy().await.unwrap();
    nats.stop().await.unwrap();
    nats.roll_back(&older, Store::TornPowerCut).await.unwrap();
    eventually(TIMEOUT, async || topology().restore(&client).await.map(drop)).await.unwrap();
    for wanted in contracts::consumers() {
        let subject = wanted.step.consumes().unwrap().subject(wanted.publisher);
        js.publish(subject, "{}".into()).await.unwrap().await.unwrap();
        next_message(&consumer(&js, wanted).await).await.double_ack().await.unwrap();
    }
}

#[tokio::test]
async fn two_runs_at_once_both_succeed() {
    let nats = Nats::start().await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let settings = topology();
    let (one, other) = tokio::join!(broker::provision(&client, &settings), broker::provision(&client, &settings));
    one.unwrap();
    other.unwrap();
}

#[tokio::test]
async fn a_missing_broker_is_awaited_up_to_the_limit() {
    let url = format!("nats://me:hunter2@127.0.0.1:{}", free_port());
    let missing = Access { url, user: None, password: String::new(), ca_file: None };
    let error = broker::connect(&missing, Duration::from_millis(1500)).await.err().unwrap();
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:") && !text.contains("hunter2"), "{text}");
    assert!(matches!(error, broker::Error::Unreachable { waited, .. } if waited >= Duration::from_millis(1500)));
}

#[tokio::test]
async fn one_of_several_servers_suffices() {
    let nats = Nats::start().await.unwrap();
    let url = format!("nats://127.0.0.1:{}, {}", free_port(), nats.url());
    let access = Access { url, user: None, password: String::new(), ca_file: None };
    broker::connect(&access, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_not_retried() {
    let nats = guarded_nats().await;
    let wrong = Access { password: "wrong".to_owned(), ..access(&nats, "provision") };
    let error = broker::connect(&wrong, Duration::from_secs(3600)).await.err().unwrap();
    assert!(matches!(error, broker::Error::Refused { .. }), "{error}");
}

async fn provisioned() -> (Nats, Client, Context) {
    let nats = Nats::start().await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let done = broker::provision(&client, &topology()).await.unwrap();
    assert_eq!(done.len(), topology().objects().len());
    let js = jetstream::new(client.clone());
    (nats, client, js)
}

fn access(nats: &Nats, user: &str) -> Access {
    Access { url: nats.url(), user: Some(user.to_owned()), password: user.to_owned(), ca_file: None }
}

async fn consumer(js: &Context, wanted: contracts::Consumer) -> Consumer<pull::Config> {
    js.get_consumer_from_stream(wanted.step.consumer(), wanted.publisher.stream()).await.unwrap()
}

async fn next_message(consumer: &Consumer<pull::Config>) -> jetstream::Message {
    let mut batch = consumer.batch().max_messages(1).expires(Duration::from_secs(5)).messages().await.unwrap();
    batch.next().await.unwrap().unwrap()
}
