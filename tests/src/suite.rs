//! The servers that services need, and what a test does to them: read the database, break the gateway or the broker, audit.

use std::{
    sync::{self, Arc, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use async_nats::jetstream::stream;
use console::audit::{Options, Report, Stores, audit};
use contracts::{PARTICIPANTS, Participant};
use faults::Faults;
use provision::broker;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use testkit::{Database, Nats, Postgres};
use tokio::{sync::Mutex, task::JoinHandle};

use crate::{Participants, Replica, Tuning, audited::Audited, client::Client, eventually};

/// How many orders are confirmed.
pub const CONFIRMED: &str = "select count(*) from orders.customer_order where status = 'CONFIRMED'";

/// A database, a broker with its topology reconciler, and a gateway, all private to one test.
pub struct TestSuite {
    pub database: Database,
    pub nats: Arc<Mutex<Nats>>,
    pub nats_url: String,
    pub gateway: gateway_simulator::RunningGateway,
    /// The database as its owner sees it.
    pub pool: PgPool,
    pub tuning: Tuning,
    reconciler: sync::Mutex<JoinHandle<()>>,
    audited: Audited,
    _journal: tempfile::TempDir,
}

impl TestSuite {
    pub async fn new() -> anyhow::Result<TestSuite> {
        Self::with(Tuning::default()).await
    }

    pub async fn with(tuning: Tuning) -> anyhow::Result<TestSuite> {
        Self::on(Database::from_template("suite", prepare).await?, tuning).await
    }

    /// A suite on a server of the test's own.
    pub async fn with_server(server: &Postgres, tuning: Tuning) -> anyhow::Result<TestSuite> {
        Self::on(Database::from_template_on(&server.server(), "suite", prepare).await?, tuning).await
    }

    /// A suite with all participants, and the product A for sale.
    pub async fn selling(price: i64, quantity: i64) -> anyhow::Result<(TestSuite, Participants)> {
        Self::selling_with(Tuning::default(), price, quantity).await
    }

    pub async fn selling_with(tuning: Tuning, price: i64, quantity: i64) -> anyhow::Result<(TestSuite, Participants)> {
        let suite = Self::with(tuning).await?;
        let participants = suite.participants().await?;
        participants.sell("A", price, quantity).await?;
        Ok((suite, participants))
    }

    /// The same, with armable faults in each service.
    pub async fn faulty(tuning: Tuning, price: i64, quantity: i64) -> anyhow::Result<(TestSuite, Participants)> {
        let suite = Self::with(tuning).await?;
        let participants = suite.participants_with_faults().await?;
        participants.sell("A", price, quantity).await?;
        Ok((suite, participants))
    }

    /// A suite with one replica of one service.
    pub async fn alone(service: saga::Service) -> anyhow::Result<(TestSuite, Replica)> {
        TestSuite::alone_with(Tuning::default(), service).await
    }

    pub async fn alone_with(tuning: Tuning, service: saga::Service) -> anyhow::Result<(TestSuite, Replica)> {
        let suite = TestSuite::with(tuning).await?;
        let replica = suite.start(service).await?;
        Ok((suite, replica))
    }

    async fn on(database: Database, tuning: Tuning) -> anyhow::Result<TestSuite> {
        // Shown with the output of a test that fails; RUST_LOG says how much.
        let log = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env());
        let _ = log.with_test_writer().try_init();
        let audited = Audited::not_yet()?;
        let nats = Nats::start().await?;
        let nats_url = nats.url();
        let reconciler = reconcile_topology(&nats_url, &tuning).await?.into();
        let journal = tempfile::tempdir()?;
        let config = gateway_simulator::Config::in_process(journal.path().join("gateway.journal"));
        let gateway = gateway_simulator::start(config).await?;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&database.admin_url())?;
        let nats = Arc::new(Mutex::new(nats));
        Ok(TestSuite { database, nats, nats_url, gateway, pool, tuning, reconciler, audited, _journal: journal })
    }

    /// All participants, one replica each.
    pub async fn participants(&self) -> anyhow::Result<Participants> {
        Participants::start(self, Faults::none).await
    }

    /// All participants, each with faults that can be armed.
    pub async fn participants_with_faults(&self) -> anyhow::Result<Participants> {
        Participants::start(self, Faults::armable).await
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
        self.start_calling(service, faults, [inventory_url, "http://127.0.0.1:1"]).await
    }

    /// One more replica, which calls two others at these addresses, if it calls them.
    pub async fn start_calling(
        &self,
        service: saga::Service,
        faults: Faults,
        servers: [&str; 2],
    ) -> anyhow::Result<Replica> {
        Box::pin(Replica::start(self, service, faults, servers)).await.with_context(|| format!("starting {service}"))
    }

    /// Audits everything once nothing is in flight, and whether what was published is documented.
    pub async fn audit(&self) -> anyhow::Result<()> {
        self.audit_with(Options { settle: Duration::from_secs(30), ..Options::default() }).await
    }

    pub async fn audit_with(&self, options: Options) -> anyhow::Result<()> {
        let report = self.report(&options).await?;
        ensure!(report.clean, "the audit found violations:\n{report}");
        self.all_events_are_documented().await
    }

    /// The report of an audit.
    pub async fn report(&self, options: &Options) -> anyhow::Result<Report> {
        self.audited.done();
        let stores = Stores {
            database_url: self.database.url_for("auditor"),
            nats_url: self.nats_url.clone(),
            nats_user: String::new(),
            nats_password: String::new(),
            nats_ca_file: None,
        };
        Ok(audit(&stores, &self.gateway.base_url, options).await?)
    }

    /// The one number that this query returns.
    pub async fn number(&self, sql: impl Into<String>) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(&self.pool).await?)
    }

    /// Waits until the query returns this number.
    pub async fn becomes(&self, sql: impl Into<String>, expected: i64) -> anyhow::Result<()> {
        let sql = sql.into();
        testkit::eventually(Duration::from_secs(60), async || {
            let number = self.number(&sql).await?;
            ensure!(number == expected, "{number} instead of {expected}: {sql}");
            anyhow::Ok(())
        })
        .await
    }

    /// Waits until this many orders are confirmed.
    pub async fn all_confirmed(&self, orders: i64) -> anyhow::Result<()> {
        self.becomes(CONFIRMED, orders).await
    }

    /// Waits until every order has ended.
    pub async fn all_ended(&self) -> anyhow::Result<()> {
        let open = "select count(*) from saga.saga_instance where status not in ('COMPLETED', 'COMPENSATED')";
        self.becomes(open, 0).await
    }

    /// Changes the database directly, bypassing the services. Returns the number of affected rows.
    pub async fn execute(&self, sql: impl Into<String>) -> anyhow::Result<u64> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&self.pool).await?.rows_affected())
    }

    /// Makes the database refuse rows of a table unless they meet a condition.
    pub async fn forbid(&self, table: &str, unless: &str) -> anyhow::Result<()> {
        let forbidden = format!("alter table {table} add constraint forbidden check ({unless}) not valid");
        self.execute(forbidden).await.map(drop)
    }

    /// Ends [`TestSuite::forbid`].
    pub async fn allow(&self, table: &str) -> anyhow::Result<()> {
        self.execute(format!("alter table {table} drop constraint forbidden")).await.map(drop)
    }

    /// The total of the charges that were not refunded.
    pub async fn money_kept(&self) -> anyhow::Result<i64> {
        let totals = self.gateway_client().get("/v1/totals").await?.expect(200)?;
        let kept = |t: &Value| t["charged"].as_i64().unwrap_or_default() - t["refunded"].as_i64().unwrap_or_default();
        Ok(totals["totals"].as_array().into_iter().flatten().map(kept).sum())
    }

    /// Arms faults in the card processor.
    pub async fn break_gateway(&self, faults: &Value) -> anyhow::Result<()> {
        self.gateway_client().post("/v1/faults", faults).await?.expect(200).map(drop)
    }

    /// Kills the broker, and starts it again with its data.
    pub async fn crash_broker(&self) -> anyhow::Result<()> {
        let mut nats = self.nats.lock().await;
        nats.kill();
        nats.start_again().await
    }

    /// Pauses a step, and waits until its consumers have no pull request left at the broker.
    pub async fn pause(&self, replica: &Replica, step: &str) -> anyhow::Result<()> {
        replica.client.act(&format!("/api/admin/consumers/{step}/pause")).await?;
        let jetstream = self.jetstream().await?;
        let pulling = contracts::consumers().into_iter().filter(|c| c.step.name == step).collect::<Vec<_>>();
        eventually(async || {
            for consumer in &pulling {
                let stream = jetstream.get_stream(consumer.publisher.stream()).await?;
                let info = stream.consumer_info(consumer.step.consumer()).await?;
                ensure!(info.num_waiting == 0, "{step} still pulls");
            }
            anyhow::Ok(())
        })
        .await
    }

    /// Limits the message size of a stream, in bytes; -1 removes the limit.
    pub async fn message_size(&self, stream: &str, bytes: i32) -> anyhow::Result<()> {
        self.change_stream(stream, |config| config.max_message_size = bytes).await
    }

    pub async fn change_stream(&self, name: &str, change: impl FnOnce(&mut stream::Config)) -> anyhow::Result<()> {
        let jetstream = self.jetstream().await?;
        let mut config = jetstream.get_stream(name).await?.cached_info().config.clone();
        change(&mut config);
        jetstream.update_stream(config).await?;
        Ok(())
    }

    /// Deletes the last event with this subject from its stream, as soon as there is one.
    pub async fn lose_last(&self, subject: &str) -> anyhow::Result<()> {
        let publisher = subject.split('.').nth(1).unwrap_or_default();
        let jetstream = self.jetstream().await?;
        eventually(async || {
            let stream = jetstream.get_stream(publisher.to_uppercase()).await?;
            let last = stream.get_last_raw_message_by_subject(subject).await?;
            ensure!(stream.delete_message(last.sequence).await?, "it was not deleted");
            anyhow::Ok(())
        })
        .await
    }

    pub async fn resume(&self, replica: &Replica, step: &str) -> anyhow::Result<()> {
        replica.client.act(&format!("/api/admin/consumers/{step}/resume")).await.map(drop)
    }

    /// Checks that no attempt was counted and nothing became a dead letter: an outage must not count against an event.
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

    /// Lets the waiting time of events in an unknown version expire.
    pub async fn end_the_wait_for_newer_replicas(&self) -> anyhow::Result<()> {
        for Participant { schema, .. } in PARTICIPANTS {
            self.execute(format!(
                "update {schema}.delivery_attempt set unread_since = unread_since - interval '1 hour'"
            ))
            .await?;
        }
        Ok(())
    }

    /// Stops the topology reconciler: streams and consumers that the broker loses stay lost.
    pub fn stop_reconciler(&self) {
        self.reconciler().abort();
    }

    /// Starts the topology reconciler again.
    pub async fn start_reconciler(&self) -> anyhow::Result<()> {
        let reconciler = reconcile_topology(&self.nats_url, &self.tuning).await?;
        *self.reconciler() = reconciler;
        Ok(())
    }

    fn reconciler(&self) -> MutexGuard<'_, JoinHandle<()>> {
        self.reconciler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn gateway_client(&self) -> Client {
        Client::new(&self.gateway.base_url)
    }
}

impl Drop for TestSuite {
    fn drop(&mut self) {
        self.reconciler().abort();
    }
}

async fn prepare(url: String) -> anyhow::Result<()> {
    Ok(provision::database::prepare(url).await?)
}

/// The topology reconciler, `provision keep` as a task: restores streams and consumers that the broker has lost, and keeps
/// streams from filling up.
async fn reconcile_topology(url: &str, tuning: &Tuning) -> anyhow::Result<JoinHandle<()>> {
    let access = broker::Access { url: url.to_owned(), user: None, password: String::new(), ca_file: None };
    let connection = broker::connect(&access, Duration::from_secs(10)).await?;
    let mut topology = broker::topology();
    topology.stream.max_bytes = tuning.stream_max_bytes;
    broker::provision(&connection.client, &topology).await?;
    Ok(tokio::spawn(async move { broker::keep(&connection, &topology).await }))
}
