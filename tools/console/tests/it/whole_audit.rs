//! The whole audit, with a broker that grants the auditor its real permissions.

use std::{fs, time::Duration};

use async_nats::{ConnectOptions, HeaderMap, jetstream};
use console::audit::{AuditError, Options, Report, Stores, Verdict, audit};
use gateway_simulator::RunningGateway;
use provision::nats_conf;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use testkit::{Database, Nats};
use uuid::Uuid;

use crate::fixture::{database, run};

/// The suite's stores, with two events of the sound suite in stream ORDER, and the gateway with the matching ledger.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) nats: Nats,
    broker: jetstream::Context,
    pub(crate) gateway: RunningGateway,
    _journal: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&nats_conf::render()).await
    }

    /// With this configuration of the broker.
    async fn with(broker: &str) -> Self {
        let journal = TempDir::new().expect("a folder");
        let config = journal.path().join("nats.conf");
        fs::write(&config, broker).expect("a file");
        let passwords: Vec<_> = contracts::broker_users().map(|(_, variable)| (variable, "secret")).collect();
        let nats = Nats::with_config(&config, &passwords).await.expect("a broker");
        let broker = connect(&nats, "provision").await;
        let config = gateway_simulator::Config::in_process(journal.path().join("gateway.journal"));
        let gateway = gateway_simulator::start(config).await.expect("a gateway");
        let world = World { database: database().await, nats, broker, gateway, _journal: journal };
        for service in contracts::SERVICES {
            let subjects = vec![format!("events.{service}.>")];
            let config = jetstream::stream::Config { name: service.stream(), subjects, ..Default::default() };
            world.broker.create_stream(config).await.expect("a stream");
        }
        world.publish().await;
        world.pay().await;
        world
    }

    /// Orders 1, 4 and 6 are charged, 4 is refunded, 3 is declined.
    async fn pay(&self) {
        for order in [1, 4, 6] {
            let charge_id = self.charge(&payment(order), "USD").await;
            let set = format!("update payment.payment set gateway_reference = '{charge_id}'");
            self.change(&format!("{set} where payment_id = '{}'", payment(order))).await;
        }
        self.call_gateway(&format!("charges/{}/refund", self.charge(&payment(4), "USD").await), "", &Value::Null).await;
        let declined = json!({"amount": 3_000, "currency": "USD", "token": "tok_declined"});
        self.call_gateway("charges", &payment(3), &declined).await;
    }

    /// Charges a card without payment, and returns the charge's id.
    pub(crate) async fn charge(&self, key: &str, currency: &str) -> String {
        let charge = json!({"amount": 3_000, "currency": currency, "token": "tok_visa"});
        self.call_gateway("charges", key, &charge).await["charge_id"].as_str().expect("a charge").to_owned()
    }

    pub(crate) async fn call_gateway(&self, path: &str, key: &str, body: &Value) -> Value {
        let url = format!("{}/v1/{path}", self.gateway.base_url);
        let request = reqwest::Client::new().post(url).header("idempotency-key", key).json(body);
        request.send().await.expect("an answer").json().await.expect("JSON")
    }

    /// Publishes the two events and writes their publish acknowledgements.
    async fn publish(&self) {
        let order = connect(&self.nats, "order").await;
        for n in 1..=2 {
            let mut headers = HeaderMap::new();
            headers.insert("ce-id", format!("0000000e-0000-7000-8000-00000000000{n}"));
            let sent = order.publish_with_headers("events.order.Order", headers, "{}".into()).await.expect("sent");
            assert_eq!(sent.await.expect("stored").sequence, n);
        }
        let epoch = self.stream("ORDER").await.cached_info().created.unix_timestamp_nanos();
        self.change(&format!(
            "update orders.outbox_published set stream_epoch = {epoch};
            update orders.relay_lease set stream_epoch = {epoch}, last_sequence = 2"
        ))
        .await;
    }

    /// Removes the messages of a stream before this sequence.
    pub(crate) async fn age_out(&self, stream: &str, before: u64) {
        self.stream(stream).await.purge().sequence(before).await.expect("purged");
    }

    /// Publishes an event that the database does not know.
    pub(crate) async fn publish_unknown(&self, service: &str, event: &str, body: &Value) {
        let mut headers = HeaderMap::new();
        headers.insert("ce-id", Uuid::now_v7().to_string());
        let (subject, body) = (format!("events.{service}.{event}"), body.to_string());
        let broker = connect(&self.nats, service).await;
        let sent = broker.publish_with_headers(subject, headers, body.into()).await.expect("sent");
        sent.await.expect("stored");
    }

    /// Changes the database directly, without its triggers.
    pub(crate) async fn change(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await.expect("a connection");
        let sql = format!("set session_replication_role = replica; {sql}");
        run(&mut connection, sql).await.expect("legal SQL");
    }

    async fn audit(&self, settle: Duration) -> Report {
        self.audit_with(&self.gateway.base_url, settle).await.expect("it can be audited")
    }

    async fn stream(&self, name: &str) -> jetstream::stream::Stream {
        self.broker.get_stream(name).await.expect("the stream")
    }

    async fn audit_with(&self, gateway_url: &str, settle: Duration) -> Result<Report, AuditError> {
        audit(&self.stores(), gateway_url, &Options { settle, ..Default::default() }).await
    }

    pub(crate) fn stores(&self) -> Stores {
        Stores {
            database_url: self.database.url_for("auditor"),
            nats_url: self.nats.url(),
            nats_user: "auditor".to_owned(),
            nats_password: "secret".to_owned(),
            nats_ca_file: None,
        }
    }
}

async fn connect(nats: &Nats, user: &str) -> jetstream::Context {
    let options = ConnectOptions::with_user_and_password(user.to_owned(), "secret".to_owned());
    let client = options.custom_inbox_prefix(format!("_INBOX_{user}")).connect(nats.url()).await;
    jetstream::new(client.expect("a connection to the broker"))
}

/// The payment of an order of the sound suite.
pub(crate) fn payment(order: u8) -> String {
    format!("0000000c-0000-7000-8000-00000000000{order}")
}

fn verdict<'a>(report: &'a Report, name: &str) -> &'a Verdict {
    report.invariants.iter().find(|verdict| verdict.name == name).expect("a verdict of this name")
}

#[tokio::test]
async fn a_sound_suite_is_clean_until_the_broker_loses_an_event() {
    for broker in [nats_conf::render(), nats_conf::render_accounts()] {
        let world = World::with(&broker).await;
        let report = world.audit(Duration::ZERO).await;
        assert!(report.clean, "{report}");
        world.stream("ORDER").await.delete_message(2).await.expect("deleted");
        let report = world.audit(Duration::ZERO).await;
        let gone = "ORDER 2 is gone: Order.v1 0000000e-0000-7000-8000-000000000002";
        assert_eq!(verdict(&report, "published_in_stream").examples, [gone], "{report}");
        assert!(!report.clean);
    }
}

/// Streams and publish acknowledgements are read page by page; violations on every page are found.
#[tokio::test]
async fn violations_on_any_page_of_a_stream_are_found() {
    const EVENTS: u64 = 11_000;
    let world = World::new().await;
    let order = connect(&world.nats, "order").await;
    let mut sent = Vec::new();
    for n in 3..=EVENTS {
        let mut headers = HeaderMap::new();
        headers.insert("ce-id", format!("0000000e-0000-7000-8000-{n:012}"));
        sent.push(order.publish_with_headers("events.order.Order", headers, "{}".into()).await.expect("sent"));
        if sent.len() == 1_000 || n == EVENTS {
            for stored in sent.drain(..) {
                stored.await.expect("stored");
            }
        }
    }
    // One acknowledgement is of an event that was never in the stream.
    let acks = format!(
        "insert into orders.outbox_published (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
            subject, headers, payload, created_at, published_at, stream, stream_sequence, stream_epoch, relay)
        select ('0000000e-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 100 + n, aggregate_type, 'many-' || n, 1,
            event_type, subject, headers, payload, created_at, published_at, stream, n, stream_epoch, relay
        from orders.outbox_published, (select generate_series(3, {EVENTS}) union all select 20000) as each (n)
        where stream_sequence = 1"
    );
    world.change(&acks).await;
    let report = world.audit(Duration::ZERO).await;
    let found = verdict(&report, "published_in_stream");
    assert_eq!(found.examples, ["ORDER 20000 is gone: Order.v1 0000000e-0000-7000-8000-000000020000"], "{report}");
    // Two acknowledgements are swapped on the first page, and a message of the second is gone.
    let swap = "update orders.outbox_published set stream_sequence = 4001 - stream_sequence
        where stream_sequence in (2000, 2001)";
    world.change(swap).await;
    world.stream("ORDER").await.delete_message(6_000).await.expect("deleted");
    let report = world.audit(Duration::ZERO).await;
    assert_eq!(verdict(&report, "published_in_stream").violations, 4, "{report}");
}

#[tokio::test]
async fn a_recreated_stream_is_no_violation() {
    let world = World::new().await;
    world.change("update orders.outbox_published set stream_epoch = stream_epoch - 1").await;
    world.stream("ORDER").await.purge().await.expect("purged");
    let report = world.audit(Duration::ZERO).await;
    assert!(report.clean, "{report}");
}

#[tokio::test]
async fn a_journalled_event_that_was_never_published_is_found() {
    let world = World::new().await;
    // The ids of the sound suite are old; recent journals are checked.
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
    let report = world.audit(Duration::ZERO).await;
    let nowhere = format!("ORDER: OrderCreated.v1 {event_id} of saga {saga_id} is nowhere");
    assert_eq!(verdict(&report, "journal_published").examples, [nowhere], "{report}");
}

/// The gateway and payment differ while order 5 is in flight.
#[tokio::test]
async fn a_difference_between_the_ledgers_is_found() {
    let world = World::new().await;
    let totals = async || {
        let report = world.audit(Duration::ZERO).await;
        verdict(&report, "gateway_totals").examples.join("; ")
    };
    assert_eq!(totals().await, "");
    world.charge("unknown", "EUR").await;
    assert_eq!(
        totals().await,
        "EUR: the gateway keeps 3000 of 1 charges and 0 refunds, payment keeps 0 of 0 charges and 0 refunds"
    );
    let refund = format!("charges/{}/refund", world.charge(&payment(1), "USD").await);
    world.call_gateway(&refund, "", &Value::Null).await;
    let report = world.audit(Duration::ZERO).await;
    assert_eq!(verdict(&report, "gateway_totals").violations, 2, "{report}");
    let refunded = &verdict(&report, "gateway_charges").examples;
    assert!(refunded.len() == 1 && refunded[0].ends_with("but the gateway has refunded it"), "{report}");
}

#[tokio::test]
async fn work_in_flight_is_left_out_unless_it_should_have_ended() {
    let world = World::new().await;
    // Payment waits for the answer.
    world.charge(&payment(5), "USD").await;
    let report = world.audit(Duration::ZERO).await;
    assert!(report.clean, "{report}");
    for name in ["gateway_totals", "gateway_charges", "money_conserved"] {
        let left_out = &verdict(&report, name).left_out;
        assert_eq!(left_out, &["order 0000000a-0000-7000-8000-000000000005 is in flight"], "{name}");
    }
    let report = world.audit(Duration::from_millis(300)).await;
    for name in ["settled", "gateway_totals", "gateway_charges"] {
        assert_eq!(verdict(&report, name).violations, 1, "{name}: {report}");
        assert!(verdict(&report, name).left_out.is_empty(), "{name}: {report}");
    }
}

#[tokio::test]
async fn without_the_gateway_s_ledger_the_audit_fails() {
    let world = World::new().await;
    let failed = world.audit_with("http://127.0.0.1:1", Duration::ZERO).await;
    assert!(matches!(failed, Err(AuditError::Gateway(_))));
}

#[tokio::test]
async fn settling_names_what_is_still_in_flight() {
    let world = World::new().await;
    let stream = world.stream("ORDER").await;
    let consumer = jetstream::consumer::pull::Config {
        durable_name: Some("payment-refund_payment".to_owned()),
        ..Default::default()
    };
    stream.create_consumer(consumer).await.expect("a consumer");
    world
        .change(
            "insert into payment.outbox (event_id, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject,
                headers, payload)
             values ('0000000e-0000-7000-8000-000000000007', 'payment', 'x', 1, 'PaymentProcessed.v1', 's', '{}', '{}')",
        )
        .await;
    let report = world.audit(Duration::from_millis(300)).await;
    let settled = verdict(&report, "settled");
    assert_eq!(
        settled.examples,
        [
            "saga 0000000b-0000-7000-8000-000000000005 is IN_PROGRESS",
            "event 0000000e-0000-7000-8000-000000000007 waits in the outbox of payment",
            "payment-refund_payment has not acknowledged everything up to 2 of ORDER"
        ],
        "{report}"
    );
    assert_eq!(verdict(&report, "outbox_empty").violations, 1, "{report}");
    world.broker.delete_consumer_from_stream("payment-refund_payment", "ORDER").await.expect("deleted");
    world
        .change(
            "update saga.saga_instance set status = 'COMPLETED', completed_at = now(), version = 4
             where status = 'IN_PROGRESS';
             delete from payment.outbox",
        )
        .await;
    let report = world.audit(Duration::from_secs(10)).await;
    assert!(verdict(&report, "settled").ok(), "{report}");
}

/// Under load something is always in flight.
#[tokio::test]
async fn settling_does_not_wait_for_later_work() {
    let world = World::new().await;
    let replace_sagas = "with ended as (
            update saga.saga_instance set status = 'COMPLETED', completed_at = now()
            where status in ('STARTED', 'IN_PROGRESS')
            returning saga_instance
        )
        insert into saga.saga_instance
        select (jsonb_populate_record(saga_instance, jsonb_build_object(
            'saga_id', gen_random_uuid(), 'business_key', gen_random_uuid(), 'status', 'STARTED', 'completed_at', null))).*
        from ended";
    let load = async {
        loop {
            world.change(replace_sagas).await;
        }
    };
    let report = tokio::select! {
        report = world.audit(Duration::from_secs(20)) => report,
        () = load => unreachable!("an endless loop"),
    };
    assert!(verdict(&report, "settled").ok() && report.duration_ms < 10_000, "{report}");
    assert_eq!(verdict(&report, "money_conserved").left_out.len(), 1, "{report}");
}
