//! The whole audit, with a broker that grants the auditor no more than its real rights and a stand-in
//! for the gateway's books.

use std::{path::Path, time::Duration};

use async_nats::{ConnectOptions, HeaderMap, jetstream};
use axum::{Json, Router, extract::Query, http::StatusCode, routing::get};
use console::audit::{AuditError, Options, Report, Stores, Verdict, audit};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testkit::{Database, Nats};
use uuid::Uuid;

use crate::fixture::{database, run};

/// The suite's stores, with two events of the sound suite in stream ORDER.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) nats: Nats,
    broker: jetstream::Context,
    pub(crate) gateway_url: String,
}

impl World {
    pub(crate) async fn new(gateway: Router) -> Self {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docker/nats.conf");
        let users =
            ["ORDER", "INVENTORY", "PAYMENT", "PROVISION", "AUDITOR"].map(|user| format!("{user}_NATS_PASSWORD"));
        let passwords: Vec<(&str, &str)> = users.iter().map(|name| (name.as_str(), "secret")).collect();
        let nats = Nats::with_config(&config, &passwords).await.expect("a broker");
        let broker = connect(&nats, "provision").await;
        let world = World { database: database().await, nats, broker, gateway_url: serve(gateway).await };
        for name in ["ORDER", "INVENTORY", "PAYMENT"] {
            let subjects = vec![format!("events.{}.>", name.to_lowercase())];
            let config = jetstream::stream::Config { name: name.to_owned(), subjects, ..Default::default() };
            world.broker.create_stream(config).await.expect("a stream");
        }
        world.publish().await;
        world
    }

    /// Publishes the two events and writes their receipts.
    async fn publish(&self) {
        let order = connect(&self.nats, "order").await;
        for n in 1..=2 {
            let mut headers = HeaderMap::new();
            headers.insert("ce-id", format!("0000000e-0000-7000-8000-00000000000{n}"));
            let sent = order.publish_with_headers("events.order.Order", headers, "{}".into()).await.expect("sent");
            assert_eq!(sent.await.expect("stored").sequence, n);
        }
        let stream = self.broker.get_stream("ORDER").await.expect("the stream");
        let epoch = stream.cached_info().created.unix_timestamp_nanos();
        self.change(&format!("update orders.outbox_published set stream_epoch = {epoch}")).await;
    }

    /// Changes the database behind everybody's back.
    pub(crate) async fn change(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await.expect("a connection");
        let sql = format!("set session_replication_role = replica; {sql}");
        run(&mut connection, sql).await.expect("legal SQL");
    }

    async fn audit(&self, settle: Duration) -> Result<Report, AuditError> {
        let stores = Stores {
            database_url: self.database.url_for("auditor"),
            nats_url: self.nats.url(),
            nats_user: "auditor".to_owned(),
            nats_password: "secret".to_owned(),
        };
        audit(&stores, &self.gateway_url, &Options { settle, ..Default::default() }).await
    }
}

async fn connect(nats: &Nats, user: &str) -> jetstream::Context {
    let options = ConnectOptions::with_user_and_password(user.to_owned(), "secret".to_owned());
    let client = options.custom_inbox_prefix(format!("_INBOX_{user}")).connect(nats.url()).await;
    jetstream::new(client.expect("a connection to the broker"))
}

/// Serves until the test's runtime ends.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// The books that belong to the sound suite: orders 1, 4 and 6 were charged, 4 was refunded.
pub(crate) fn gateway(charges: i64) -> Router {
    let totals = json!({ "totals": [
        { "currency": "USD", "charged": charges * 3_000, "refunded": 3_000, "charges": charges, "refunds": 1, "declines": 1 }
    ]});
    Router::new().route("/v1/totals", get(|| async move { Json(totals) })).route("/v1/charges", get(charge))
}

#[derive(serde::Deserialize)]
struct Key {
    idempotency_key: Uuid,
}

async fn charge(Query(key): Query<Key>) -> Result<Json<Value>, StatusCode> {
    let order = key.idempotency_key.as_u128() & 0xf;
    let declined = json!({ "idempotency_key": key.idempotency_key, "status": "declined", "decline_code": "voided" });
    match order {
        1 | 4 | 6 => Ok(Json(json!({
            "charge_id": format!("charge-{order}"), "amount": 3_000, "currency": "USD", "refunded": order == 4,
            "status": "captured",
        }))),
        2 | 3 => Ok(Json(declined)),
        _ => Err(StatusCode::NOT_FOUND),
    }
}

fn verdict<'a>(report: &'a Report, name: &str) -> &'a Verdict {
    report.invariants.iter().find(|verdict| verdict.name == name).expect("a verdict of this name")
}

#[tokio::test]
async fn a_sound_suite_is_clean_until_the_broker_loses_an_event() {
    let world = World::new(gateway(3)).await;
    let report = world.audit(Duration::ZERO).await.expect("it can be audited");
    assert!(report.clean, "{report}");
    let stream = world.broker.get_stream("ORDER").await.expect("the stream");
    stream.delete_message(2).await.expect("deleted");
    let report = world.audit(Duration::ZERO).await.expect("it can be audited");
    let gone = "ORDER 2 is gone: Order.v1 0000000e-0000-7000-8000-000000000002";
    assert_eq!(verdict(&report, "published_in_stream").examples, [gone], "{report}");
    assert!(!report.clean);
}

#[tokio::test]
async fn a_stream_that_was_created_anew_owes_nothing() {
    let world = World::new(gateway(3)).await;
    world.change("update orders.outbox_published set stream_epoch = stream_epoch - 1").await;
    world.broker.get_stream("ORDER").await.expect("the stream").purge().await.expect("purged");
    let report = world.audit(Duration::ZERO).await.expect("it can be audited");
    assert!(report.clean, "{report}");
}

#[tokio::test]
async fn a_journalled_event_that_was_never_published_is_found() {
    let world = World::new(gateway(3)).await;
    // The ids of the sound suite are old; a journal of today is looked at.
    let (saga_id, event_id) = (Uuid::now_v7(), Uuid::now_v7());
    world
        .change(&format!(
            "insert into saga.saga_step
                (saga_id, position, step_number, step, service, direction, event_type, event_id, status, status_before,
                 status_after)
            values ('{saga_id}', 1, 0, 'create_order', 'order', 'FORWARD', 'OrderCreated.v1', '{event_id}', 'COMPLETED',
                'STARTED', 'STARTED')"
        ))
        .await;
    let report = world.audit(Duration::ZERO).await.expect("it can be audited");
    let nowhere = format!("ORDER: OrderCreated.v1 {event_id} of saga {saga_id} is nowhere");
    assert_eq!(verdict(&report, "journal_published").examples, [nowhere], "{report}");
}

#[tokio::test]
async fn a_gateway_that_charged_twice_is_found() {
    let world = World::new(gateway(4)).await;
    let report = world.audit(Duration::ZERO).await.expect("it can be audited");
    assert_eq!(verdict(&report, "gateway_totals").violations, 1, "{report}");
    assert!(!report.clean);
}

#[tokio::test]
async fn without_the_gateway_s_books_there_is_no_verdict() {
    let world = World::new(Router::new()).await;
    assert!(matches!(world.audit(Duration::ZERO).await, Err(AuditError::Gateway(_))));
}

#[tokio::test]
async fn settling_names_what_is_still_in_flight() {
    let world = World::new(gateway(3)).await;
    let stream = world.broker.get_stream("ORDER").await.expect("the stream");
    let consumer = jetstream::consumer::pull::Config {
        durable_name: Some("payment-refund_payment".to_owned()),
        ..Default::default()
    };
    stream.create_consumer(consumer).await.expect("a consumer");
    let report = world.audit(Duration::from_millis(300)).await.expect("it can be audited");
    let settled = verdict(&report, "settled");
    assert_eq!(
        settled.examples,
        ["1 sagas are IN_PROGRESS", "payment-refund_payment has not had 2 events of ORDER"],
        "{report}"
    );
    world.broker.delete_consumer_from_stream("payment-refund_payment", "ORDER").await.expect("deleted");
    world
        .change(
            "update saga.saga_instance set status = 'COMPLETED', completed_at = now(), version = 4
             where status = 'IN_PROGRESS'",
        )
        .await;
    let report = world.audit(Duration::from_secs(10)).await.expect("it can be audited");
    assert!(verdict(&report, "settled").ok(), "{report}");
}
