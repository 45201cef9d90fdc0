//! A private nats-server with JetStream that a test may stop, crash, freeze and wipe.

use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::process::{Process, Signal};
use crate::programs::program;
use crate::wait::free_port;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A part of a broker's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Whole,
    /// The messages of its streams, without the state of consumers.
    Messages,
    /// The same, and of the consumers only their positions: files that were written shortly before a power failure are empty
    /// afterwards unless they were synced.
    PowerCut,
    /// The same, and the positions are unreadable, because they were being written.
    TornPowerCut,
}

/// A nats-server with a private port and store; both stay the same when it is started again.
#[derive(Debug)]
pub struct Nats {
    // Dropped before the folder that it uses.
    process: Option<Process>,
    port: u16,
    config: Option<PathBuf>,
    environment: Vec<(String, String)>,
    folder: Arc<TempDir>,
}

impl Nats {
    /// Starts one without authentication.
    pub async fn start() -> anyhow::Result<Self> {
        Self::launch(None, Vec::new()).await
    }

    /// Starts one with a configuration file and the variables that it refers to. Port and store stay private: the file
    /// says `store_dir: $NATS_STORE_DIR`.
    pub async fn with_config(
        config: &Path,
        environment: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> anyhow::Result<Self> {
        let environment = environment.iter().map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned()));
        Self::launch(Some(config.to_owned()), environment.collect()).await
    }

    async fn launch(config: Option<PathBuf>, environment: Vec<(String, String)>) -> anyhow::Result<Self> {
        let folder = Arc::new(TempDir::new()?);
        let mut nats = Nats { process: None, port: free_port(), config, environment, folder };
        nats.start_again().await?;
        Ok(nats)
    }

    /// `nats://127.0.0.1:PORT`, without a user.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again on the same port and store; does nothing when it runs.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut command = Command::new(program("NATS_SERVER_BIN", "sbin", &["nats-server"])?);
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string()]);
        match &self.config {
            // With its store on the command line, nats-server 2.9 does not reload its configuration.
            Some(config) => command.arg("-c").arg(config).env("NATS_STORE_DIR", format!("{:?}", self.store())),
            None => command.args(["-js", "-sd"]).arg(self.store()),
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start_in(self.folder.clone(), "nats-server", &mut command, Signal::Kill)?;
        let port = self.port;
        process.ready(START_TIMEOUT, async || greets(port)).await?;
        self.process = Some(process);
        Ok(())
    }

    /// An orderly stop (SIGTERM).
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.stop(Signal::Term, STOP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// An orderly stop and a start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// kill -9, all data deleted, and a start: the broker starts empty.
    pub async fn wipe(&mut self) -> anyhow::Result<()> {
        self.kill();
        std::fs::remove_dir_all(self.store()).context("the store cannot be deleted")?;
        self.start_again().await
    }

    /// Copies its store as it is now. Stops it for that.
    pub async fn keep_copy(&mut self) -> anyhow::Result<TempDir> {
        let copy = TempDir::new()?;
        self.stop().await?;
        copy_folder(&self.store(), copy.path())?;
        self.start_again().await?;
        Ok(copy)
    }

    /// kill -9, and a start with this part of its store as of the copy.
    pub async fn roll_back(&mut self, copy: &TempDir, what: Store) -> anyhow::Result<()> {
        self.kill();
        let store = self.store();
        let folders = match what {
            Store::Whole => vec![store.clone()],
            Store::Messages | Store::PowerCut | Store::TornPowerCut => folders_of_streams(&store, "msgs")?,
        };
        for folder in folders {
            std::fs::remove_dir_all(&folder)?;
            copy_folder(&copy.path().join(folder.strip_prefix(&store)?), &folder)?;
        }
        if matches!(what, Store::PowerCut | Store::TornPowerCut) {
            for consumers in folders_of_streams(&store, "obs")? {
                for consumer in std::fs::read_dir(consumers)? {
                    let consumer = consumer?.path();
                    std::fs::write(consumer.join("meta.inf"), "")?;
                    if what == Store::TornPowerCut {
                        std::fs::write(consumer.join("o.dat"), [0; 20])?;
                    }
                }
            }
        }
        self.start_again().await
    }

    /// Reloads its configuration, without closing connections of users that still exist.
    pub fn reload(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().map_or(Ok(()), |process| process.signal(Signal::Hup))
    }

    /// Freezes it: connections stay open without responses.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::pause)
    }

    /// Ends [`Nats::pause`].
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::resume)
    }

    /// Its log since its start; empty while it is stopped.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}

/// Whether it sends its greeting, which it does only after JetStream has recovered its streams.
fn greets(port: u16) -> bool {
    let greeting = TcpStream::connect(("127.0.0.1", port)).and_then(|mut connection| {
        connection.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut word = [0; 4];
        connection.read_exact(&mut word).map(|()| word)
    });
    greeting.is_ok_and(|word| word == *b"INFO")
}

/// The folders of messages (`msgs`) or consumers (`obs`) of all streams in the store.
fn folders_of_streams(store: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for account in std::fs::read_dir(store.join("jetstream"))? {
        for stream in std::fs::read_dir(account?.path().join("streams"))? {
            folders.push(stream?.path().join(name));
        }
    }
    Ok(folders)
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
