//! A database per test, a quick copy of a template with all tables. The templates are on one shared server: the one that
//! `TEST_POSTGRES_URL` names, or one that this test process starts.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::postgres::Postgres;

/// A server's address and its superuser.
#[derive(Debug, Clone)]
pub struct Server {
    superuser: String,
    address: String,
}

impl Server {
    pub(crate) fn new(superuser: &str, address: &str) -> Self {
        Server { superuser: superuser.to_owned(), address: address.to_owned() }
    }

    /// Reads `postgres://USER[:PASSWORD]@HOST:PORT/...`.
    fn parse(url: &str) -> anyhow::Result<Self> {
        let rest = url.split_once("://").map(|(_, rest)| rest);
        let parts = rest.and_then(|rest| rest.split('/').next()?.rsplit_once('@'));
        let (superuser, address) = parts.with_context(|| format!("{url} is not postgres://USER@HOST:PORT/DATABASE"))?;
        Ok(Server::new(superuser, address))
    }

    /// The URL of one of its databases, as the superuser.
    pub fn url(&self, database: &str) -> String {
        self.url_for(&self.superuser, database)
    }

    /// The URL of one of its databases, as `USER` or `USER:PASSWORD`.
    pub fn url_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.address)
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        let options = PgConnectOptions::from_str(&self.url("postgres"))?;
        options.connect().await.with_context(|| format!("no test database server at {}", self.address))
    }
}

/// The private database of one test, dropped with it.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// A copy of the template `key`. If there is none yet, `prepare` makes it: it gets the superuser's URL of an empty
    /// database, creates roles and tables, and closes its connections. Templates are prepared one at a time.
    ///
    /// A template is prepared again for each new build of the test program; `key` distinguishes other differences.
    pub async fn from_template(
        key: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        Self::from_template_on(&shared_server().await?, key, prepare).await
    }

    /// Like [`Database::from_template`], on a private server of the test.
    pub async fn from_template_on(
        server: &Server,
        key: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let template = format!("template_{key}_{}", fingerprint()?);
        let mut connection = server.connect().await?;
        if !exists(&mut connection, &template).await? {
            // Roles belong to the whole server, so this is one lock for all templates. It ends with the connection.
            sqlx::query("select pg_advisory_lock(7377656)").execute(&mut connection).await?;
            if !exists(&mut connection, &template).await? {
                make_template(server, &mut connection, &template, prepare).await?;
            }
            sqlx::query("select pg_advisory_unlock(7377656)").execute(&mut connection).await?;
        }
        let database = Database { server: server.clone(), name: format!("t_{}", Uuid::now_v7().simple()) };
        run(&mut connection, format!("create database {} template {template}", database.name)).await?;
        connection.close().await?;
        Ok(database)
    }

    pub async fn empty() -> anyhow::Result<Self> {
        let server = shared_server().await?;
        let database = Database { server, name: format!("t_{}", Uuid::now_v7().simple()) };
        let mut connection = database.server.connect().await?;
        run(&mut connection, format!("create database {}", database.name)).await?;
        connection.close().await?;
        Ok(database)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL as the superuser.
    pub fn admin_url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its URL as a role whose password is its name.
    pub fn url_for(&self, role: &str) -> String {
        self.server.url_for(&format!("{role}:{role}"), &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // In its own thread, because a runtime cannot block inside another one. If it fails, the database stays until the
        // server ends.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = server.connect().await.ok()?;
                run(&mut connection, format!("drop database if exists {name} with (force)")).await.ok()
            })
        });
        let _ = dropping.join();
    }
}

async fn shared_server() -> anyhow::Result<Server> {
    static OWN: OnceCell<Postgres> = OnceCell::const_new();
    match std::env::var("TEST_POSTGRES_URL") {
        Ok(url) => Server::parse(&url),
        // Never dropped; its watcher ends it when this process has ended.
        Err(_) => Ok(OWN.get_or_try_init(Postgres::start).await?.server()),
    }
}

async fn make_template(
    server: &Server,
    connection: &mut PgConnection,
    template: &str,
    prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Under another name until it is complete: a test that is killed meanwhile leaves no incomplete template.
    let unfinished = format!("{template}_unfinished");
    run(connection, format!("drop database if exists {unfinished} with (force)")).await?;
    run(connection, format!("create database {unfinished}")).await?;
    prepare(server.url(&unfinished)).await.with_context(|| format!("{template} could not be prepared"))?;
    run(connection, format!("alter database {unfinished} rename to {template}")).await
}

async fn exists(connection: &mut PgConnection, database: &str) -> anyhow::Result<bool> {
    let query = sqlx::query_scalar("select exists (select from pg_database where datname = $1)").bind(database);
    Ok(query.fetch_one(connection).await?)
}

async fn run(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

/// Changes with each build of the test program, and so with the migrations compiled into it.
fn fingerprint() -> anyhow::Result<String> {
    let program = std::env::current_exe()?;
    let built = program.metadata()?;
    let mut hasher = DefaultHasher::new();
    (&program, built.len(), built.modified()?).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}
