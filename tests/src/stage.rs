//! The servers that services need, and what a test does with all of them together.

use std::{
    sync::{self, Arc, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use console::audit::{Options, Report, Stores, audit};
use contracts::{INVENTORY, ORDER, PARTICIPANTS, PAYMENT, Participant, SERVICES};
use faults::Faults;
use provision::broker;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use testkit::{Database, Nats, eventually};
use tokio::{sync::Mutex, task::JoinHandle};

use crate::{Replica, Tuning, audited::Audited, client::Client};

/// A database, a broker with its keeper, and a gateway.
pub struct Stage {
    pub database: Database,
    pub nats: Arc<Mutex<Nats>>,
    pub nats_url: String,
    pub gateway: gateway_simulator::RunningGateway,
    /// The database as its owner sees it.
    pub pool: PgPool,
    pub tuning: Tuning,
    keeper: sync::Mutex<JoinHandle<()>>,
    audited: Audited,
    _journal: tempfile::TempDir,
}

impl Stage {
    pub async fn new() -> anyhow::Result<Stage> {
        Self::with(Tuning::default()).await
    }

    pub async fn with(tuning: Tuning) -> anyhow::Result<Stage> {
        let prepare = async |url| Ok(provision::database::prepare(url).await?);
        let database = Database::from_template("suite", prepare).await?;
        Self::on(database, tuning).await
    }

    /// A stage with all participants, and the product A for sale.
    pub async fn selling(price: i64, quantity: i64) -> anyhow::Result<(Stage, Dancers)> {
        Self::selling_with(Tuning::default(), price, quantity).await
    }

    pub async fn selling_with(tuning: Tuning, price: i64, quantity: i64) -> anyhow::Result<(Stage, Dancers)> {
        let stage = Self::with(tuning).await?;
        let suite = stage.dancers().await?;
        suite.sell("A", price, quantity).await?;
        Ok((stage, suite))
    }

    /// The same; in each service faults can be armed.
    pub async fn faulty(tuning: Tuning, price: i64, quantity: i64) -> anyhow::Result<(Stage, Dancers)> {
        let stage = Self::with(tuning).await?;
        let suite = stage.dancers_with_faults().await?;
        suite.sell("A", price, quantity).await?;
        Ok((stage, suite))
    }

    /// A stage with one replica of one service.
    pub async fn alone(service: saga::Service) -> anyhow::Result<(Stage, Replica)> {
        Stage::alone_with(Tuning::default(), service).await
    }

    pub async fn alone_with(tuning: Tuning, service: saga::Service) -> anyhow::Result<(Stage, Replica)> {
        let stage = Stage::with(tuning).await?;
        let replica = stage.start(service).await?;
        Ok((stage, replica))
    }

    /// A stage on a database that the test has made itself.
    pub async fn on(database: Database, tuning: Tuning) -> anyhow::Result<Stage> {
        // Shown with the output of a test that fails; RUST_LOG says how much.
        let log = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env());
        let _ = log.with_test_writer().try_init();
        let audited = Audited::not_yet()?;
        let nats = Nats::start().await?;
        let nats_url = nats.url();
        let keeper = keep_topology(&nats_url, &tuning).await?.into();
        let journal = tempfile::tempdir()?;
        let config = gateway_simulator::Config::in_process(journal.path().join("gateway.journal"));
        let gateway = gateway_simulator::start(config).await?;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&database.admin_url())?;
        let nats = Arc::new(Mutex::new(nats));
        Ok(Stage { database, nats, nats_url, gateway, pool, tuning, keeper, audited, _journal: journal })
    }

    /// All participants, one replica each.
    pub async fn dancers(&self) -> anyhow::Result<Dancers> {
        self.dancers_with(Faults::none).await
    }

    /// All participants, each with faults that can be armed.
    pub async fn dancers_with_faults(&self) -> anyhow::Result<Dancers> {
        self.dancers_with(Faults::armable).await
    }

    async fn dancers_with(&self, faults: fn() -> Faults) -> anyhow::Result<Dancers> {
        let inventory = self.start_with(INVENTORY, faults(), "").await?;
        let order = self.start_with(ORDER, faults(), &inventory.url).await?;
        let payment = self.start_with(PAYMENT, faults(), "").await?;
        let mut suite = Dancers::of(order, inventory, payment);
        for service in Dancers::others() {
            suite.others.push(self.start_with(service, faults(), "").await?);
        }
        Ok(suite)
    }

    /// One more replica of one service.
    pub async fn start(&self, service: saga::Service) -> anyhow::Result<Replica> {
        self.start_with(service, Faults::none(), "http://127.0.0.1:1").await
    }

    pub async fn start_with(
        &self,
        service: saga::Service,
        faults: Faults,
        inventory_url: &str,
    ) -> anyhow::Result<Replica> {
        Replica::start(self, service, faults, inventory_url).await.with_context(|| format!("starting {service}"))
    }

    /// Audits everything, after the suite has settled.
    pub async fn audit(&self) -> anyhow::Result<()> {
        self.audit_with(Options { settle: Duration::from_secs(30), ..Options::default() }).await
    }

    pub async fn audit_with(&self, options: Options) -> anyhow::Result<()> {
        let report = self.report(&options).await?;
        ensure!(report.clean, "the audit found violations:\n{report}");
        Ok(())
    }

    /// What an audit finds.
    pub async fn report(&self, options: &Options) -> anyhow::Result<Report> {
        self.audited.done();
        let stores = Stores {
            database_url: self.database.url_for("auditor"),
            nats_url: self.nats_url.clone(),
            nats_user: String::new(),
            nats_password: String::new(),
        };
        Ok(audit(&stores, &self.gateway.base_url, options).await?)
    }

    /// A number that the database knows.
    pub async fn number(&self, sql: &'static str) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar(sql).fetch_one(&self.pool).await?)
    }

    /// Waits until a number that the database knows is this one.
    pub async fn becomes(&self, sql: &'static str, expected: i64) -> anyhow::Result<()> {
        eventually(Duration::from_secs(60), async || {
            let number = self.number(sql).await?;
            ensure!(number == expected, "{number} instead of {expected}: {sql}");
            anyhow::Ok(())
        })
        .await
    }

    /// Does something to the database behind the services' backs; how many rows that has changed.
    pub async fn execute(&self, sql: impl Into<String>) -> anyhow::Result<u64> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&self.pool).await?.rows_affected())
    }

    /// Lets the card processor go wrong like this.
    pub async fn break_gateway(&self, faults: &Value) -> anyhow::Result<()> {
        self.gateway_client().post("/v1/faults", faults).await?.expect(200).map(drop)
    }

    /// Pauses a step, and waits until its consumers ask the broker for nothing any more.
    pub async fn pause(&self, replica: &Replica, step: &str) -> anyhow::Result<()> {
        replica.client.post(&format!("/api/admin/consumers/{step}/pause"), &json!({})).await?.expect(200)?;
        let jetstream = self.jetstream().await?;
        let pulling = contracts::consumers().into_iter().filter(|c| c.step.name == step).collect::<Vec<_>>();
        eventually(Duration::from_secs(20), async || {
            for consumer in &pulling {
                let stream = jetstream.get_stream(consumer.publisher.stream()).await?;
                let info = stream.consumer_info(consumer.step.consumer()).await?;
                ensure!(info.num_waiting == 0, "{step} still pulls");
            }
            anyhow::Ok(())
        })
        .await
    }

    /// How large the messages of a stream may be; -1: any size.
    pub async fn message_size(&self, stream: &str, bytes: i32) -> anyhow::Result<()> {
        let jetstream = self.jetstream().await?;
        let mut config = jetstream.get_stream(stream).await?.cached_info().config.clone();
        config.max_message_size = bytes;
        jetstream.update_stream(config).await?;
        Ok(())
    }

    /// The broker loses the last event with this subject, as soon as it has one.
    pub async fn lose_last(&self, subject: &str) -> anyhow::Result<()> {
        let publisher = subject.split('.').nth(1).unwrap_or_default();
        let jetstream = self.jetstream().await?;
        eventually(Duration::from_secs(20), async || {
            let stream = jetstream.get_stream(publisher.to_uppercase()).await?;
            let last = stream.get_last_raw_message_by_subject(subject).await?;
            ensure!(stream.delete_message(last.sequence).await?, "it was not deleted");
            anyhow::Ok(())
        })
        .await
    }

    pub async fn resume(&self, replica: &Replica, step: &str) -> anyhow::Result<()> {
        replica.client.post(&format!("/api/admin/consumers/{step}/resume"), &json!({})).await?.expect(200)?;
        Ok(())
    }

    /// No attempt of any event has been counted, and none is a dead letter: as it must be after an outage.
    pub async fn nothing_was_counted(&self) -> anyhow::Result<()> {
        let counted = self
            .number(
                "select (select count(*) from audit.outbox_attempt) + (select count(*) from audit.delivery_attempt)
                    + (select count(*) from audit.dead_letter)",
            )
            .await?;
        ensure!(counted == 0, "{counted} attempts or dead letters were counted");
        Ok(())
    }

    /// What waits for a replica that can read it has waited for long enough.
    pub async fn end_the_wait_for_newer_replicas(&self) -> anyhow::Result<()> {
        for Participant { schema, .. } in PARTICIPANTS {
            self.execute(format!(
                "update {schema}.delivery_attempt set unread_since = unread_since - interval '1 hour'"
            ))
            .await?;
        }
        Ok(())
    }

    /// From now on nobody puts back what the broker loses.
    pub fn dismiss_keeper(&self) {
        self.keeper().abort();
    }

    /// Somebody does again.
    pub async fn appoint_keeper(&self) -> anyhow::Result<()> {
        let keeper = keep_topology(&self.nats_url, &self.tuning).await?;
        *self.keeper() = keeper;
        Ok(())
    }

    fn keeper(&self) -> MutexGuard<'_, JoinHandle<()>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn gateway_client(&self) -> Client {
        Client::new(&self.gateway.base_url)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.keeper().abort();
    }
}

/// What `provision keep` does: the topology is put back whenever the broker has lost it, and streams are kept from filling up.
async fn keep_topology(url: &str, tuning: &Tuning) -> anyhow::Result<JoinHandle<()>> {
    let access = broker::Access { url: url.to_owned(), user: None, password: String::new() };
    let connection = broker::connect(&access, Duration::from_secs(10)).await?;
    let mut settings = broker::Settings::default();
    settings.stream.max_bytes = tuning.stream_max_bytes;
    broker::provision(&connection.client, &settings).await?;
    Ok(tokio::spawn(async move { broker::keep(&connection, &settings).await }))
}

/// The participants; those that no test moves by name are the others.
pub struct Dancers {
    pub order: Replica,
    pub inventory: Replica,
    pub payment: Replica,
    pub others: Vec<Replica>,
}

impl Dancers {
    pub fn of(order: Replica, inventory: Replica, payment: Replica) -> Self {
        Dancers { order, inventory, payment, others: Vec::new() }
    }

    /// The same with the other participants, which are started for it.
    pub async fn with_others(mut self, stage: &Stage) -> anyhow::Result<Self> {
        for service in Self::others() {
            self.others.push(stage.start(service).await?);
        }
        Ok(self)
    }

    fn others() -> impl Iterator<Item = saga::Service> {
        SERVICES.into_iter().filter(|service| ![ORDER, INVENTORY, PAYMENT].contains(service))
    }

    pub fn all(&self) -> impl Iterator<Item = &Replica> {
        [&self.order, &self.inventory, &self.payment].into_iter().chain(&self.others)
    }

    /// Puts a product on sale and waits until order knows it.
    pub async fn sell(&self, sku: &str, price: i64, quantity: i64) -> anyhow::Result<()> {
        self.inventory.client.create_product(sku, price, quantity).await?.expect(201)?;
        let path = format!("/api/products/{sku}");
        eventually(Duration::from_secs(10), async || {
            self.order.client.get(&path).await.is_ok_and(|answer| answer.status == 200)
        })
        .await
        .with_context(|| format!("order does not learn of {sku}"))
    }

    /// Places an order and returns it.
    pub async fn place(&self, lines: &[(&str, i64)], token: &str) -> anyhow::Result<Value> {
        self.order.client.post("/api/orders", &order_of(lines, token)).await?.expect(201)
    }

    /// Places so many orders for one unit.
    pub async fn place_many(&self, count: usize, token: &str) -> anyhow::Result<Vec<Value>> {
        let mut placed = Vec::with_capacity(count);
        for _ in 0..count {
            placed.push(self.place(&[("A", 1)], token).await?);
        }
        Ok(placed)
    }

    /// Places an order and waits until it is confirmed.
    pub async fn confirmed(&self, lines: &[(&str, i64)]) -> anyhow::Result<Value> {
        let placed = self.place(lines, "tok_visa").await?;
        self.saga_becomes(&placed, "COMPLETED").await?;
        Ok(placed)
    }

    pub async fn sagas_become(&self, orders: impl IntoIterator<Item = &Value>, status: &str) -> anyhow::Result<()> {
        for order in orders {
            self.saga_becomes(order, status).await?;
        }
        Ok(())
    }

    pub async fn saga(&self, order: &Value) -> anyhow::Result<Value> {
        let path = format!("/api/sagas/{}", order["saga_id"].as_str().unwrap_or_default());
        self.order.client.get(&path).await?.expect(200)
    }

    /// Waits until the order's saga has this status, and returns the saga.
    pub async fn saga_becomes(&self, order: &Value, status: &str) -> anyhow::Result<Value> {
        eventually(Duration::from_secs(20), async || {
            let saga = self.saga(order).await?;
            ensure!(saga["status"] == status, "the saga is {}: {saga:#}", saga["status"]);
            anyhow::Ok(Some(saga))
        })
        .await
    }

    pub async fn order(&self, order: &Value) -> anyhow::Result<Value> {
        let path = format!("/api/orders/{}", order["order_id"].as_str().unwrap_or_default());
        self.order.client.get(&path).await?.expect(200)
    }

    pub async fn payment_of(&self, order: &Value) -> anyhow::Result<Option<Value>> {
        let path = format!("/api/payments?order_id={}", order["order_id"].as_str().unwrap_or_default());
        Ok(self.payment.client.get(&path).await?.expect(200)?["items"].get(0).cloned())
    }

    pub async fn product(&self, sku: &str) -> anyhow::Result<Value> {
        self.inventory.client.get(&format!("/api/products/{sku}")).await?.expect(200)
    }

    pub async fn cancel(&self, order: &Value) -> anyhow::Result<u16> {
        let path = format!("/api/orders/{}/cancel", order["order_id"].as_str().unwrap_or_default());
        Ok(self.order.client.post(&path, &json!({"reason": "changed my mind"})).await?.status)
    }
}

pub fn order_of(lines: &[(&str, i64)], token: &str) -> Value {
    let lines: Vec<_> = lines.iter().map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity})).collect();
    json!({"customer_id": "alice", "lines": lines, "payment_method": token})
}
