//! A private PostgreSQL server. Its data needs to survive crashes of the server, not of the machine, so it never syncs to disk.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use crate::database::Server;
use crate::process::{Process, Signal};
use crate::programs::postgres_folder;
use crate::wait::free_port;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with a private port and data; both stay the same when it is started again.
/// Every user may connect without a password; the superuser is `postgres`.
#[derive(Debug)]
pub struct Postgres {
    // Dropped before the folder that it uses.
    process: Option<Process>,
    port: u16,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    folder: Arc<TempDir>,
}

impl Postgres {
    /// Creates a new cluster and starts it.
    pub async fn start() -> anyhow::Result<Self> {
        Self::with_settings(&[]).await
    }

    /// Like [`Postgres::start`], with additional settings, such as `("fsync", "on")`.
    pub async fn with_settings(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::with_environment(settings, &[]).await
    }

    /// Like [`Postgres::with_settings`], with additional environment variables.
    pub async fn with_environment(settings: &[(&str, &str)], environment: &[(String, String)]) -> anyhow::Result<Self> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::launch(make_folder()?, settings, environment.to_owned()).await
    }

    /// Like [`Postgres::start`], with TLS for those who ask for it.
    pub async fn with_certificate(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let folder = make_folder()?;
        let mut settings = vec![("ssl".to_owned(), "on".to_owned())];
        for (name, file) in [("ssl_cert_file", certificate), ("ssl_key_file", key)] {
            let copy = folder.path().join(name);
            std::fs::copy(file, &copy)?;
            if let Some(user) = server_user()? {
                chown(&copy, Some(user.id), Some(user.group))?;
            }
            settings.push((name.to_owned(), copy.display().to_string()));
        }
        Self::launch(folder, settings, Vec::new()).await
    }

    async fn launch(
        folder: TempDir,
        settings: Vec<(String, String)>,
        environment: Vec<(String, String)>,
    ) -> anyhow::Result<Self> {
        let folder = Arc::new(folder);
        let mut postgres = Postgres { process: None, port: free_port(), settings, environment, folder };
        make_cluster(&postgres.data())?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Its address, as the superuser.
    pub fn server(&self) -> Server {
        Server::new("postgres", &format!("127.0.0.1:{}", self.port))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again on the same port and data; does nothing when it runs.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        // After the change of user, because files that a library creates for one user may not be accessible to another.
        let mut command = as_server_user(Path::new("/usr/bin/env"))?;
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command
            .arg(postgres_folder()?.join("postgres"))
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()]);
        let defaults = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("shared_buffers", "128MB"),
            ("max_connections", "1000"),
            ("jit", "off"),
        ];
        let own = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.into_iter().chain(own) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // The immediate shutdown, because a kill -9 would leave shared memory.
        let mut process = Process::start_in(self.folder.clone(), "postgres", &mut command, Signal::Quit)?;
        let options = PgConnectOptions::from_str(&self.server().url("postgres"))?;
        process.ready(START_TIMEOUT, async || accepts(&options).await).await?;
        self.process = Some(process);
        Ok(())
    }

    /// Makes a hot standby that streams from `port` of this machine, which leads to this server. Copies the data, so this server is
    /// stopped for a moment.
    pub async fn standby(&mut self, port: u16) -> anyhow::Result<Postgres> {
        self.stop_fast().await?;
        let source = format!("host=127.0.0.1 port={port} user=postgres application_name=standby");
        let settings = self.settings.iter().cloned().chain([("primary_conninfo".to_owned(), source)]).collect();
        let folder = Arc::new(make_folder()?);
        let mut standby =
            Postgres { process: None, port: free_port(), settings, environment: self.environment.clone(), folder };
        self.copy(&self.data(), &standby.data())?;
        std::fs::write(standby.data().join("standby.signal"), "")?;
        self.start_again().await?;
        standby.start_again().await?;
        Ok(standby)
    }

    /// Replaces this stopped server by its standby: it starts again with what that has received.
    pub async fn fail_over(&mut self, mut standby: Postgres) -> anyhow::Result<()> {
        standby.stop_fast().await?;
        std::fs::remove_file(standby.data().join("standby.signal"))?;
        self.copy(&standby.data(), &self.data())?;
        self.start_again().await
    }

    /// The immediate shutdown: sessions end as in a crash, and the next start recovers from the log.
    pub async fn stop_immediate(&mut self) -> anyhow::Result<()> {
        self.stop(Signal::Quit).await
    }

    /// The fast shutdown: transactions are rolled back, sessions closed, all data written.
    pub async fn stop_fast(&mut self) -> anyhow::Result<()> {
        self.stop(Signal::Int).await
    }

    async fn stop(&mut self, signal: Signal) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.stop(signal, STOP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Copies the data of the stopped server, replacing an earlier copy.
    pub fn back_up(&self) -> anyhow::Result<()> {
        self.copy(&self.data(), &self.backup())
    }

    /// Restores the stopped server to the state of [`Postgres::back_up`].
    pub fn put_back(&self) -> anyhow::Result<()> {
        self.copy(&self.backup(), &self.data())
    }

    fn copy(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "the server has to be stopped first");
        if to.exists() {
            std::fs::remove_dir_all(to)?;
        }
        let copied = Command::new("cp").arg("-a").args([from, to]).status().context("cp cannot be started")?;
        ensure!(copied.success(), "{} cannot be copied to {}", from.display(), to.display());
        Ok(())
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

async fn accepts(options: &PgConnectOptions) -> bool {
    match options.connect().await {
        Ok(connection) => connection.close().await.is_ok(),
        Err(_) => false,
    }
}

fn make_folder() -> anyhow::Result<TempDir> {
    let Some(user) = server_user()? else {
        return Ok(TempDir::new()?);
    };
    // Root's temporary folder may not be accessible to that user.
    let folder = TempDir::new_in("/var/tmp")?;
    chown(folder.path(), Some(user.id), Some(user.group))?;
    Ok(folder)
}

fn make_cluster(data: &Path) -> anyhow::Result<()> {
    let output = as_server_user(&postgres_folder()?.join("initdb"))?
        .arg("-D")
        .arg(data)
        .args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"])
        .output()
        .context("initdb cannot be started")?;
    if !output.status.success() {
        bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

struct ServerUser {
    id: u32,
    group: u32,
}

/// PostgreSQL refuses to run as root, so then it runs as `postgres` or, where there is no such user, as `nobody`.
fn server_user() -> anyhow::Result<Option<ServerUser>> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let number = |option: &str, name: &str| -> Option<u32> {
        let output = Command::new("id").args([option, name]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    let found = ["postgres", "nobody"]
        .iter()
        .find_map(|name| Some(ServerUser { id: number("-u", name)?, group: number("-g", name)? }));
    Ok(Some(found.context("found neither a user postgres nor nobody to run PostgreSQL as")?))
}

fn as_server_user(program: &Path) -> anyhow::Result<Command> {
    let mut command = match server_user()? {
        None => Command::new(program),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={}", user.id)).arg(format!("--regid={}", user.group));
            command.arg("--clear-groups").arg(program).env("HOME", "/tmp");
            command
        }
    };
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    Ok(command)
}
