//! One program of the suite as a child process that can be killed, frozen and started again, with the same settings and on the
//! same port, and optionally as another build. Its output is kept when it ends.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context;
use testkit::{Process, Signal, eventually};
use tokio::sync::Mutex;

use crate::clock::Clock;

/// How long a program may take to stop in good order.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// The settings of the program, and its process while it runs.
#[derive(Debug)]
pub struct Program {
    pub name: String,
    /// Its clock, if clocks can be stepped.
    pub clock: Option<Clock>,
    path: Mutex<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    logs: PathBuf,
    process: Mutex<Option<Process>>,
    wanted: AtomicBool,
}

impl Program {
    /// A program that is not started yet. These settings are added to the environment of this process.
    pub fn new(
        name: &str,
        path: PathBuf,
        arguments: &[&str],
        environment: Vec<(String, String)>,
        clock: Option<Clock>,
        logs: PathBuf,
    ) -> Self {
        Program {
            name: name.to_owned(),
            clock,
            path: Mutex::new(path),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment,
            logs,
            process: Mutex::new(None),
            wanted: AtomicBool::new(false),
        }
    }

    /// Starts it; nothing happens when it runs.
    pub async fn start(&self) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        self.wanted.store(true, Ordering::Relaxed);
        if process.as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        if let Some(ended) = process.take() {
            self.append(&ended.log())?;
        }
        *process = Some(Process::start(&mut self.command().await)?);
        Ok(())
    }

    /// Stops it gracefully, and starts the program of the same name in this folder.
    pub async fn replace(&self, programs: &Path) -> anyhow::Result<()> {
        self.stop().await?;
        let mut path = self.path.lock().await;
        *path = programs.join(path.file_name().context("a program without a name")?);
        drop(path);
        self.start().await
    }

    /// Runs it to its end; an error exit is an error.
    pub async fn run(&self, limit: Duration) -> anyhow::Result<()> {
        let mut process = Process::start(&mut self.command().await)?;
        let ended = eventually(limit, async || !process.is_running()).await;
        let log = process.log();
        let status = process.stop(Signal::Term, STOP_LIMIT).await?;
        ended.with_context(|| format!("{} did not end:\n{log}", self.name))?;
        anyhow::ensure!(status.success(), "{} failed:\n{log}", self.name);
        Ok(())
    }

    /// kill -9.
    pub async fn kill(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        if let Some(process) = self.process.lock().await.as_mut() {
            process.kill();
        }
    }

    /// Stops it gracefully.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.wanted.store(false, Ordering::Relaxed);
        match self.process.lock().await.as_mut() {
            Some(process) => process.stop(Signal::Term, STOP_LIMIT).await.map(drop),
            None => Ok(()),
        }
    }

    /// Suspends it: its connections stay open without answers.
    pub async fn freeze(&self) -> anyhow::Result<()> {
        self.process.lock().await.as_mut().map_or(Ok(()), Process::pause)
    }

    /// Ends [`Program::freeze`].
    pub async fn thaw(&self) -> anyhow::Result<()> {
        self.process.lock().await.as_mut().map_or(Ok(()), Process::resume)
    }

    pub async fn is_running(&self) -> bool {
        self.process.lock().await.as_mut().is_some_and(Process::is_running)
    }

    /// Starts it again if it has ended unexpectedly; true in that case.
    pub async fn supervise(&self) -> anyhow::Result<bool> {
        if !self.wanted.load(Ordering::Relaxed) || self.is_running().await {
            return Ok(false);
        }
        self.start().await.map(|()| true)
    }

    /// Its output since its last start.
    pub async fn log(&self) -> String {
        self.process.lock().await.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Appends its output since its last start to its log file.
    pub async fn save_log(&self) -> anyhow::Result<()> {
        let log = self.log().await;
        self.append(&log)
    }

    fn append(&self, log: &str) -> anyhow::Result<()> {
        if log.is_empty() {
            return Ok(());
        }
        let path = self.logs.join(format!("{}.log", self.name));
        let mut file = File::options().create(true).append(true).open(&path)?;
        file.write_all(log.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
    }

    async fn command(&self) -> Command {
        let mut command = Command::new(&*self.path.lock().await);
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(self.clock.iter().flat_map(Clock::environment));
        command
    }
}
