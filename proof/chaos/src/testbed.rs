//! A private suite: PostgreSQL and NATS as durable as in production, the topology reconciler, the card processor, and replicas of
//! each service, each of them a child process behind its own proxies.

mod deploy;
mod users;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use console::{
    audit::{self, Options, Report, Stores},
    suite::{Addresses, NewProduct, ParticipantUrls, Suite},
};
use contracts::{PARTICIPANTS, Participant};
use saga::Service;
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use testkit::{Nats, Postgres, Proxy, eventually, free_port};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{clock::Clock, program::Program};

/// Like scripts/up, with durability as in production, and with fewer connections, for `hog_connections`.
const POSTGRES: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("shared_buffers", "256MB"),
    ("max_connections", "180"),
    ("wal_compression", "on"),
    ("max_wal_size", "2GB"),
];
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The settings of a suite.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder of the suite's programs.
    pub programs: PathBuf,
    /// libfaketime, if clocks can be stepped.
    pub clocks: Option<PathBuf>,
    /// The folder for the logs of ended processes.
    pub logs: PathBuf,
    /// Processes of each service.
    pub replicas: usize,
    /// Settings of the services, of the gateway and of provision, as environment variables.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// A suite whose logs go to this folder, which is emptied first.
    pub fn new(programs: PathBuf, logs: PathBuf, replicas: usize) -> anyhow::Result<Self> {
        if logs.exists() {
            std::fs::remove_dir_all(&logs)?;
        }
        Ok(Settings { programs, clocks: None, logs, replicas, environment: Vec::new() })
    }

    /// Adds defaults: earlier settings take precedence.
    #[must_use]
    pub fn with(mut self, defaults: &[(&str, &str)]) -> Self {
        let defaults = defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.environment.splice(0..0, defaults);
        self
    }
}

/// One process of a service, and its links to servers.
#[derive(Debug)]
pub struct Replica {
    pub service: Service,
    pub url: String,
    pub program: Program,
    pub database: Proxy,
    pub broker: Proxy,
    /// To the servers that it calls.
    pub servers: HashMap<&'static str, Proxy>,
}

/// The suite. Dependents are declared before their dependencies, so that they are dropped first.
#[derive(Debug)]
pub struct Testbed {
    pub replicas: Vec<Arc<Replica>>,
    pub gateway: Program,
    pub gateway_url: String,
    pub reconciler: Program,
    /// The reconciler's link to the broker.
    pub reconciler_broker: Proxy,
    pub nats: Mutex<Nats>,
    pub postgres: Mutex<Postgres>,
    pub database_clock: Option<Clock>,
    /// A pool of the database's owner, without a proxy.
    pub pool: PgPool,
    /// A client of the first replicas, then one of the second replicas.
    pub suites: Vec<Suite>,
    pub database_url: String,
    /// Without a user: see [`Testbed::broker`].
    pub nats_url: String,
    /// Older than every event of the suite, so an event with such an id is forged.
    pub before_all: Uuid,
    /// The card processor's journal, and the broker's configuration.
    folder: tempfile::TempDir,
}

impl Testbed {
    /// Starts everything and waits until it is ready.
    pub async fn start(settings: &Settings) -> anyhow::Result<Arc<Testbed>> {
        std::fs::create_dir_all(&settings.logs)?;
        let before_all = Uuid::now_v7();
        let database_clock = settings.clock("postgres")?;
        let environment: Vec<_> = database_clock.iter().flat_map(Clock::environment).collect();
        let postgres = Postgres::with_environment(POSTGRES, &environment).await?;
        let folder = tempfile::tempdir()?;
        let configuration = users::write_configuration(folder.path(), users::PRODUCTION)?;
        let nats = Nats::with_config(&configuration, &users::passwords()).await?;
        let owner = postgres.server().url("suite");
        let mut connection = PgConnection::connect(&postgres.server().url("postgres")).await?;
        sqlx::query("create database suite").execute(&mut connection).await?;
        connection.close().await?;
        settings.provision("provision", &[], &owner, nats.url())?.run(READY_LIMIT).await?;
        let reconciler_broker = Proxy::in_front_of_nats(nats.port()).await?;
        let reconciler = settings.provision("keep", &["keep"], &owner, nats_behind(&reconciler_broker))?;
        reconciler.start().await?;
        let gateway_port = free_port();
        let gateway = settings.gateway(gateway_port, folder.path())?;
        gateway.start().await?;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&owner)?;
        let (database_port, nats_port, nats_url) = (postgres.port(), nats.port(), nats.url());
        let mut testbed = Testbed {
            replicas: Vec::new(),
            gateway,
            gateway_url: format!("http://127.0.0.1:{gateway_port}"),
            reconciler,
            reconciler_broker,
            database_url: postgres.server().url_for("auditor", "suite"),
            nats_url,
            nats: Mutex::new(nats),
            postgres: Mutex::new(postgres),
            database_clock,
            pool,
            suites: Vec::new(),
            before_all,
            folder,
        };
        let mut links = Links { database: database_port, nats: nats_port, servers: HashMap::new() };
        links.servers.insert("gateway_simulator", gateway_port);
        for number in 0..settings.replicas {
            // Callers come before the services that they call.
            for participant in PARTICIPANTS.iter().rev() {
                let port = free_port();
                links.servers.entry(participant.service.0).or_insert(port);
                testbed.replicas.push(Arc::new(settings.replica(participant, number, port, &links).await?));
            }
        }
        for number in 0..settings.replicas {
            testbed.suites.push(Suite::new(Addresses {
                participants: ParticipantUrls::new(|service| testbed.replicas_of(service)[number].url.clone()),
                gateway_url: testbed.gateway_url.clone(),
                admin_token: "dev-admin-token".to_owned(),
            })?);
        }
        for replica in &testbed.replicas {
            replica.program.start().await?;
        }
        testbed.ready(READY_LIMIT).await?;
        Ok(Arc::new(testbed))
    }

    pub fn replicas_of(&self, service: Service) -> Vec<Arc<Replica>> {
        self.replicas.iter().filter(|replica| replica.service == service).cloned().collect()
    }

    /// The suite through its first replicas.
    pub fn suite(&self) -> &Suite {
        &self.suites[0]
    }

    /// Waits until every replica is ready.
    pub async fn ready(&self, limit: Duration) -> anyhow::Result<()> {
        for replica in &self.replicas {
            self.ready_one(replica, limit).await?;
        }
        Ok(())
    }

    /// Waits until this replica is ready.
    ///
    /// # Errors
    /// When it is not within the limit; the error shows its log.
    pub async fn ready_one(&self, replica: &Replica, limit: Duration) -> anyhow::Result<()> {
        let ready = eventually(limit, async || self.suite().ready_at(&replica.url).await).await;
        if ready.is_err() {
            let log = replica.program.log().await;
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            return ready.with_context(|| {
                format!("{} is not ready; its log, last line first:\n{}", replica.program.name, tail.join("\n"))
            });
        }
        Ok(())
    }

    /// Creates a product and waits until it is in order's catalogue.
    pub async fn sell(&self, sku: &str, price: i64, quantity: i64) -> anyhow::Result<()> {
        self.suite().sell(&NewProduct::of(sku, sku, price, quantity), READY_LIMIT).await
    }

    /// A connection to the broker without a proxy and without permission limits.
    pub async fn broker(&self) -> anyhow::Result<async_nats::Client> {
        Ok(users::unrestricted().connect(&self.nats_url).await?)
    }

    /// What the auditor reads.
    pub fn stores(&self) -> Stores {
        Stores {
            database_url: self.database_url.clone(),
            nats_url: self.nats_url.clone(),
            nats_user: users::AUDITOR.to_owned(),
            nats_password: users::AUDITOR.to_owned(),
            nats_ca_file: None,
        }
    }

    pub async fn audit(&self, options: Options) -> anyhow::Result<Report> {
        Ok(audit::audit(&self.stores(), &self.gateway_url, &options).await?)
    }

    /// Writes the output of the processes to their log files.
    pub async fn save_logs(&self) -> anyhow::Result<()> {
        for program in self.replicas.iter().map(|replica| &replica.program).chain([&self.reconciler, &self.gateway]) {
            program.save_log().await?;
        }
        Ok(())
    }
}

impl Replica {
    /// A client of this replica.
    pub fn suite(&self, testbed: &Testbed) -> Suite {
        testbed.suite().at(self.service, &self.url)
    }
}

/// The target ports of a replica's links.
struct Links {
    database: u16,
    nats: u16,
    /// Of the first replicas, and of the card processor.
    servers: HashMap<&'static str, u16>,
}

impl Settings {
    fn program(
        &self,
        binary: &str,
        name: &str,
        arguments: &[&str],
        own: Vec<(String, String)>,
    ) -> anyhow::Result<Program> {
        let path = self.programs.join(binary);
        ensure!(path.is_file(), "{} is not built", path.display());
        let environment = [("RUST_LOG".to_owned(), "warn".to_owned())];
        let environment = environment.into_iter().chain(self.environment.iter().cloned()).chain(own).collect();
        let clock = self.clock(name)?;
        Ok(Program::new(name, path, arguments, environment, clock, self.logs.clone()))
    }

    fn clock(&self, name: &str) -> anyhow::Result<Option<Clock>> {
        self.clocks.as_ref().map(|library| Clock::new(library, name)).transpose()
    }

    fn provision(&self, name: &str, arguments: &[&str], owner: &str, nats_url: String) -> anyhow::Result<Program> {
        let own = [("DATABASE_URL".to_owned(), owner.to_owned()), ("NATS_URL".to_owned(), nats_url)];
        let own = own.into_iter().chain(users::settings(users::PROVISION)).collect();
        self.program("provision", name, arguments, own)
    }

    /// Recreates the streams.
    pub(crate) async fn renew(&self, testbed: &Testbed) -> anyhow::Result<()> {
        self.provision("renew", &["renew"], "", testbed.nats_url.clone())?.run(READY_LIMIT).await
    }

    fn gateway(&self, port: u16, folder: &Path) -> anyhow::Result<Program> {
        let own = [
            ("LISTEN".to_owned(), format!("127.0.0.1:{port}")),
            ("GATEWAY_JOURNAL".to_owned(), folder.join("gateway.journal").display().to_string()),
        ];
        self.program("gateway_simulator", "gateway", &[], own.to_vec())
    }

    async fn replica(
        &self,
        participant: &Participant,
        number: usize,
        port: u16,
        links: &Links,
    ) -> anyhow::Result<Replica> {
        let database = Proxy::start(links.database).await?;
        let broker = Proxy::in_front_of_nats(links.nats).await?;
        let mut servers = HashMap::new();
        for server in participant.calls {
            let to = links.servers.get(server).with_context(|| format!("{server} is started too late"))?;
            servers.insert(*server, Proxy::start(*to).await?);
        }
        let (service, role) = (participant.service, participant.role());
        let own = [
            ("LISTEN", format!("127.0.0.1:{port}")),
            ("DATABASE_URL", format!("postgres://{role}:{role}@127.0.0.1:{}/suite", database.port())),
            ("NATS_URL", nats_behind(&broker)),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let called = servers
            .iter()
            .map(|(server, proxy)| (contracts::url_variable(server), format!("http://127.0.0.1:{}", proxy.port())));
        let own = own.chain(called).chain(users::settings(service.0)).collect();
        let program = self.program(service.0, &format!("{service}-{}", number + 1), &[], own)?;
        Ok(Replica { service, url: format!("http://127.0.0.1:{port}"), program, database, broker, servers })
    }
}

fn nats_behind(proxy: &Proxy) -> String {
    format!("nats://127.0.0.1:{}", proxy.port())
}
