//! What the broker's users can do, in both forms of its configuration, and what they may not subscribe to. What each may publish
//! is in `matrix`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{
    Client, Event, ServerError,
    jetstream::{
        self,
        consumer::{DeliverPolicy, pull},
        stream::LastRawMessageErrorKind::NoMessageFound,
    },
};
use futures_util::StreamExt;
use provision::{broker, nats_conf};
use testkit::{Nats, eventually};

use crate::{guarded_nats_of, matrix::users};

const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn the_servers_file_is_generated_from_the_table_of_steps() {
    let file = std::fs::read_to_string(crate::nats_conf_file()).unwrap();
    assert_eq!(file, nats_conf::render(), "run: provision nats-conf > docker/nats.conf");
}

#[tokio::test]
async fn a_service_publishes_its_events_and_consumes_for_its_steps() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        for consumer in contracts::consumers() {
            let event = consumer.step.consumes().unwrap().subject(consumer.publisher);
            let publisher = User::connect(&nats, consumer.publisher.0).await;
            publisher.js().publish(event, "{}".into()).await.unwrap().await.unwrap();

            let reader = User::connect(&nats, consumer.service.0).await;
            let (name, stream) = (consumer.step.consumer(), consumer.publisher.stream());
            let pulled = reader.js().get_consumer_from_stream::<pull::Config, _, _>(&name, &stream).await.unwrap();
            let mut messages = pulled.stream().heartbeat(Duration::from_secs(1)).messages().await.unwrap();
            let message = messages.next().await.unwrap().unwrap();
            message.double_ack().await.unwrap();
            let after = reader.js().get_consumer_from_stream::<pull::Config, _, _>(&name, &stream).await.unwrap();
            assert!(after.cached_info().ack_floor.stream_sequence > 0, "{name}");
            assert_eq!(reader.refusals(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_service_sees_its_own_stream_and_wakes_its_own_replicas() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        for service in contracts::SERVICES {
            let (one, other) = (User::connect(&nats, service.0).await, User::connect(&nats, service.0).await);
            let mut nudges = one.client.subscribe(service.nudge_subject()).await.unwrap();
            // The first ones may come before the subscription is active.
            eventually(TIMEOUT, async || {
                other.client.publish(service.nudge_subject(), "".into()).await.unwrap();
                tokio::time::timeout(Duration::from_millis(50), nudges.next()).await.is_ok()
            })
            .await
            .unwrap();

            let js = one.js();
            // The client cannot read what older servers answer.
            let account = one.client.request("$JS.API.INFO", "".into()).await.unwrap().payload;
            assert!(String::from_utf8_lossy(&account).contains("account_info_response"), "{account:?}");
            let ack = js.publish(format!("events.{service}.Something"), "{}".into()).await.unwrap().await.unwrap();
            let stream = js.get_stream(service.stream()).await.unwrap();
            assert_eq!(stream.cached_info().state.last_sequence, ack.sequence);
            stream.get_raw_message(ack.sequence).await.unwrap();
            stream.direct_get(ack.sequence).await.unwrap();
            stream.direct_get_last_for_subject(format!("events.{service}.Something")).await.unwrap();
            assert_eq!(one.refusals(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_user_subscribes_only_to_its_own_answers() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        let users: Vec<_> = contracts::broker_users().map(|(user, _)| user).collect();
        for name in &users {
            let user = User::connect(&nats, name).await;
            for other in users.iter().filter(|other| *other != name) {
                user.may_not_subscribe(&format!("_INBOX_{other}.>")).await;
                user.may_not_subscribe(&format!("nudge.{other}")).await;
                user.may_not_subscribe(&format!("replicas.{other}.ask")).await;
                user.may_not_subscribe(&format!("replicas.{other}.>")).await;
            }
            for subject in ["_INBOX.>", ">", "*.>", "events.>", "events.order.*", "$JS.>", "$JS.API.>", "$SYS.>"] {
                user.may_not_subscribe(subject).await;
            }
        }
    }
}

/// NATS does not check the reply subject of a request.
#[tokio::test]
async fn an_answer_becomes_anothers_event_only_in_one_account() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        let order = User::connect(&nats, "order").await;
        for request in ["$JS.API.INFO", "$JS.API.STREAM.INFO.ORDER", "events.order.Real"] {
            order.client.publish_with_reply(request, "events.payment.Forged", "".into()).await.unwrap();
        }
        // Requests of one connection are answered in their order.
        order.js().publish("events.order.Last", "".into()).await.unwrap().await.unwrap();
        order.js().get_stream("ORDER").await.unwrap();
        let forged = is_forged(&provisioner(&nats).await.js(), contracts::PAYMENT).await;
        assert_eq!(forged, !accounts);
        assert_eq!(order.refusals(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn with_accounts_no_answer_is_another_services_event_or_call() {
    let nats = provisioned(true).await;
    let consumers = contracts::consumers();
    let mut calls = contracts::SERVICES.map(|any| format!("STREAM.DELETE.{}", any.stream())).to_vec();
    calls.extend(consumers.iter().flat_map(|consumer| {
        let (stream, name) = (consumer.publisher.stream(), consumer.step.consumer());
        ["DELETE", "CREATE"].map(|call| format!("CONSUMER.{call}.{stream}.{name}"))
    }));
    // So many that each reply subject can get one.
    for consumer in &consumers {
        let event = consumer.step.consumes().unwrap().subject(consumer.publisher);
        let publisher = User::connect(&nats, consumer.publisher.0).await.js();
        for _ in 0..calls.len() + contracts::SERVICES.len() {
            publisher.publish(event.clone(), "{}".into()).await.unwrap().await.unwrap();
        }
    }
    for (name, permissions) in users(true).iter().filter(|(name, _)| *name != "provision") {
        let others = contracts::SERVICES.into_iter().filter(|service| service.0 != name);
        let events = others.map(|other| format!("events.{other}.Forged"));
        let replies: Vec<_> = calls.iter().map(|call| format!("$JS.API.{call}")).chain(events).collect();
        let user = User::connect(&nats, name).await;
        for request in permissions.requests() {
            for reply in &replies {
                let body = r#"{"batch": 1, "no_wait": true}"#.into();
                user.client.publish_with_reply(request.clone(), reply.clone(), body).await.unwrap();
            }
        }
        user.js().get_stream("ORDER").await.unwrap();
        assert_eq!(user.refusals(), Vec::<String>::new());
    }
    assert!(nothing_is_missing(&nats).await, "a stream or consumer was deleted or changed");
    let js = provisioner(&nats).await.js();
    for service in contracts::SERVICES {
        assert!(!is_forged(&js, service).await, "an event of {service}");
    }
}

async fn is_forged(js: &jetstream::Context, service: saga::Service) -> bool {
    let stream = js.get_stream(service.stream()).await.unwrap();
    match stream.get_last_raw_message_by_subject(&format!("events.{service}.Forged")).await {
        Ok(_) => true,
        Err(error) if error.kind() == NoMessageFound => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_auditor_reads_every_stream_and_every_consumers_lag() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        let auditor = User::connect(&nats, "auditor").await;
        for service in contracts::SERVICES {
            let publisher = User::connect(&nats, service.0).await;
            for _ in 0..3 {
                let subject = format!("events.{service}.Something");
                publisher.js().publish(subject, "{}".into()).await.unwrap().await.unwrap();
            }
            let stream = auditor.js().get_stream(service.stream()).await.unwrap();
            let consumers = contracts::consumers().iter().filter(|c| c.publisher == service).count();
            assert_eq!(stream.consumers().count().await, consumers);
            assert_eq!(stream.consumer_names().count().await, consumers);
            stream.get_raw_message(1).await.unwrap();
            stream.direct_get(2).await.unwrap();

            let name = Some(format!("auditor-{service}"));
            let ordered = pull::OrderedConfig { name, headers_only: true, ..Default::default() };
            let mut read = stream.create_consumer(ordered).await.unwrap().messages().await.unwrap();
            for sequence in 1..=3 {
                assert_eq!(read.next().await.unwrap().unwrap().info().unwrap().stream_sequence, sequence);
            }
            stream.delete_consumer(&format!("auditor-{service}")).await.unwrap();
        }
        assert_eq!(auditor.refusals(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_auditor_cannot_change_a_services_consumer_by_an_alias() {
    for accounts in [false, true] {
        let nats = provisioned(accounts).await;
        let auditor = User::connect(&nats, "auditor").await;
        let (stream, durable) = ("ORDER", "inventory-reserve_stock");
        for config in [
            pull::Config {
                durable_name: Some(durable.to_owned()),
                name: Some("alias".to_owned()),
                ..Default::default()
            },
            pull::Config { name: Some("alias".to_owned()), deliver_policy: DeliverPolicy::New, ..Default::default() },
        ] {
            let mut body = serde_json::to_value(&config).unwrap();
            body["name"] = durable.into();
            let request = serde_json::json!({ "stream_name": stream, "config": body });
            let answer = auditor
                .js()
                .request::<_, _, serde_json::Value>(format!("CONSUMER.CREATE.{stream}.alias"), &request)
                .await;
            assert!(answer.is_ok(), "{answer:?}");
        }
        let js = jetstream::new(provisioner(&nats).await.client);
        let settings = broker::topology();
        let wanted = contracts::consumers().into_iter().find(|c| c.step.consumer() == durable).unwrap();
        let ensured =
            messaging::topology::ensure_consumer(&js, wanted.step, wanted.publisher, &settings.consumer).await;
        assert_eq!(ensured.unwrap(), messaging::topology::Ensured::Unchanged);
    }
}

/// A connection of a user, with the server's refusals.
pub(crate) struct User {
    pub(crate) client: Client,
    refusals: Arc<Mutex<Vec<String>>>,
}

impl User {
    pub(crate) async fn connect(nats: &Nats, name: &str) -> Self {
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&refusals);
        let client = async_nats::ConnectOptions::with_user_and_password(name.to_owned(), name.to_owned())
            .custom_inbox_prefix(format!("_INBOX_{name}"))
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(refusal)) = event {
                    seen.lock().unwrap().push(refusal.to_lowercase());
                }
                std::future::ready(())
            })
            .connect(nats.url())
            .await
            .unwrap();
        User { client, refusals }
    }

    pub(crate) fn js(&self) -> jetstream::Context {
        jetstream::new(self.client.clone())
    }

    pub(crate) fn refusals(&self) -> Vec<String> {
        self.refusals.lock().unwrap().clone()
    }

    pub(crate) async fn may_not_publish(&self, subject: &str) {
        self.client.publish(subject.to_owned(), "".into()).await.unwrap();
        self.is_refused(&format!("publish to \"{subject}\"")).await;
    }

    async fn may_not_subscribe(&self, subject: &str) {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.is_refused(&format!("subscription to \"{subject}\"")).await;
    }

    async fn is_refused(&self, what: &str) {
        let refusal = format!("permissions violation for {what}").to_lowercase();
        self.client.flush().await.unwrap();
        eventually(TIMEOUT, async || self.refusals().contains(&refusal)).await.unwrap_or_else(|_| panic!("may {what}"));
    }
}

async fn provisioned(accounts: bool) -> Nats {
    let nats = guarded_nats_of(accounts).await;
    broker::provision(&provisioner(&nats).await.client, &broker::topology()).await.unwrap();
    nats
}

async fn provisioner(nats: &Nats) -> User {
    User::connect(nats, "provision").await
}

pub(crate) async fn nothing_is_missing(nats: &Nats) -> bool {
    broker::provision(&provisioner(nats).await.client, &broker::topology()).await.unwrap().is_empty()
}
