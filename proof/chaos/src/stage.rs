//! A whole suite of its own: PostgreSQL and NATS as durable as in production, the keeper of the broker's topology, the card
//! processor, and replicas of each service, every one a child process behind proxies of its own.

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
use testkit::{Nats, Postgres, eventually, free_port};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{clock::Clock, program::Program, proxy::Proxy};

/// As scripts/up sets PostgreSQL, with durability as in production. The connections that can be hogged are few.
const POSTGRES: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("shared_buffers", "256MB"),
    ("max_connections", "180"),
    ("wal_compression", "on"),
    ("max_wal_size", "2GB"),
];
const READY_LIMIT: Duration = Duration::from_secs(60);

/// What suite is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder of the suite's programs.
    pub programs: PathBuf,
    /// libfaketime, when clocks are to be stepped.
    pub clocks: Option<PathBuf>,
    /// Where the logs of ended processes go.
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

    /// With these defaults, too: what was set before stays.
    #[must_use]
    pub fn with(mut self, defaults: &[(&str, &str)]) -> Self {
        let defaults = defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.environment.splice(0..0, defaults);
        self
    }
}

/// One process of a service, and the links that it has to others.
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

/// The suite. What depends on something else is declared before it, so that it ends first.
#[derive(Debug)]
pub struct Stage {
    pub replicas: Vec<Arc<Replica>>,
    pub gateway: Program,
    pub gateway_url: String,
    pub keeper: Program,
    /// The keeper's link to the broker.
    pub keeper_broker: Proxy,
    pub nats: Mutex<Nats>,
    pub postgres: Mutex<Postgres>,
    pub database_clock: Option<Clock>,
    /// The database as its owner sees it, past all proxies.
    pub pool: PgPool,
    /// The first replicas as clients see them, then the second ones.
    pub suites: Vec<Suite>,
    pub database_url: String,
    /// Without a user: see [`Stage::broker`].
    pub nats_url: String,
    /// Older than every event of the suite, so an event with such an id is known to be none of its own.
    pub before_all: Uuid,
    /// The card processor's journal, and the broker's configuration.
    folder: tempfile::TempDir,
}

impl Stage {
    /// Starts everything and waits until it is ready.
    pub async fn start(settings: &Settings) -> anyhow::Result<Arc<Stage>> {
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
        let keeper_broker = Proxy::in_front_of_nats(nats.port()).await?;
        let keeper = settings.provision("keep", &["keep"], &owner, nats_behind(&keeper_broker))?;
        keeper.start().await?;
        let gateway_port = free_port();
        let gateway = settings.gateway(gateway_port, folder.path())?;
        gateway.start().await?;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&owner)?;
        let (database_port, nats_port, nats_url) = (postgres.port(), nats.port(), nats.url());
        let mut stage = Stage {
            replicas: Vec::new(),
            gateway,
            gateway_url: format!("http://127.0.0.1:{gateway_port}"),
            keeper,
            keeper_broker,
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
            // Whoever calls others stands before them.
            for participant in PARTICIPANTS.iter().rev() {
                let port = free_port();
                links.servers.entry(participant.service.0).or_insert(port);
                stage.replicas.push(Arc::new(settings.replica(participant, number, port, &links).await?));
            }
        }
        for number in 0..settings.replicas {
            stage.suites.push(Suite::new(Addresses {
                participants: ParticipantUrls::new(|service| stage.replicas_of(service)[number].url.clone()),
                gateway_url: stage.gateway_url.clone(),
                admin_token: "dev-admin-token".to_owned(),
            })?);
        }
        for replica in &stage.replicas {
            replica.program.start().await?;
        }
        stage.ready(READY_LIMIT).await?;
        Ok(Arc::new(stage))
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

    /// Puts a product on sale and waits until order knows it.
    pub async fn sell(&self, sku: &str, price: i64, quantity: i64) -> anyhow::Result<()> {
        self.suite().sell(&NewProduct::of(sku, sku, price, quantity), READY_LIMIT).await
    }

    /// A connection to the broker, past all proxies, of somebody who may do everything there.
    pub async fn broker(&self) -> anyhow::Result<async_nats::Client> {
        Ok(users::stranger().connect(&self.nats_url).await?)
    }

    /// What the auditor reads.
    pub fn stores(&self) -> Stores {
        Stores {
            database_url: self.database_url.clone(),
            nats_url: self.nats_url.clone(),
            nats_user: users::AUDITOR.to_owned(),
            nats_password: users::AUDITOR.to_owned(),
        }
    }

    pub async fn audit(&self, options: Options) -> anyhow::Result<Report> {
        Ok(audit::audit(&self.stores(), &self.gateway_url, &options).await?)
    }

    /// Writes down what the processes have printed.
    pub async fn save_logs(&self) -> anyhow::Result<()> {
        for program in self.replicas.iter().map(|replica| &replica.program).chain([&self.keeper, &self.gateway]) {
            program.save_log().await?;
        }
        Ok(())
    }
}

impl Replica {
    /// The suite as it is seen through this replica.
    pub fn suite(&self, stage: &Stage) -> Suite {
        stage.suite().at(self.service, &self.url)
    }
}

/// The ports that a replica's links lead to.
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
        self.clocks.as_ref().map(|library| Clock::new(library, &self.logs, name)).transpose()
    }

    fn provision(&self, name: &str, arguments: &[&str], owner: &str, nats_url: String) -> anyhow::Result<Program> {
        let own = [("DATABASE_URL".to_owned(), owner.to_owned()), ("NATS_URL".to_owned(), nats_url)];
        let own = own.into_iter().chain(users::settings(users::PROVISION)).collect();
        self.program("provision", name, arguments, own)
    }

    /// Has the streams made anew.
    pub(crate) async fn renew(&self, stage: &Stage) -> anyhow::Result<()> {
        self.provision("renew", &["renew"], "", stage.nats_url.clone())?.run(READY_LIMIT).await
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
