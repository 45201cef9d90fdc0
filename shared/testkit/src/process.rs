//! Child processes that end with the test that started them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::wait::eventually;

const LOG: &str = "log";

/// A signal by its POSIX name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: finish and exit.
    Term,
    /// SIGINT, as Ctrl-C; PostgreSQL's fast shutdown.
    Int,
    /// PostgreSQL's immediate shutdown.
    Quit,
    /// SIGHUP: reload the configuration.
    Hup,
    /// Ends at once.
    Kill,
    /// Freezes the process, which keeps its memory, files and connections. See [`Process::pause`].
    Stop,
    /// Ends a freeze.
    Cont,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Term => "TERM",
            Signal::Int => "INT",
            Signal::Quit => "QUIT",
            Signal::Hup => "HUP",
            Signal::Kill => "KILL",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        }
    }
}

/// A running program with a private folder, which has its log and is deleted with it.
///
/// Dropping it ends the program. If the test is killed first, a watcher ends it: a shell that waits until its standard input is
/// closed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    watcher: Child,
    last_signal: Signal,
    folder: Arc<TempDir>,
}

impl Process {
    /// Starts the command; both its outputs go to [`Process::log`].
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::start_in(Arc::new(TempDir::new()?), &name, command, Signal::Kill)
    }

    /// Like [`Process::start`], in a folder that outlives it. Drop and watcher send `last_signal`.
    pub(crate) fn start_in(
        folder: Arc<TempDir>,
        name: &str,
        command: &mut Command,
        last_signal: Signal,
    ) -> anyhow::Result<Self> {
        let log = File::options().create(true).append(true).open(folder.path().join(LOG))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let watcher = watch(&child, last_signal, folder.path())?;
        Ok(Process { name: name.to_owned(), child, watcher, last_signal, folder })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends the signal, if it still runs.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        // The child is not reaped before try_wait, so the id cannot belong to another process.
        let status =
            Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal.name(), &self.id().to_string()]).status()?;
        if !status.success() && self.is_running() {
            bail!("{} {} could not be sent {}", self.name, self.id(), signal.name());
        }
        Ok(())
    }

    /// Sends the signal and waits for the end, which must come within the limit.
    ///
    /// # Errors
    /// When it still runs after the limit; the error shows the end of its log.
    pub async fn stop(&mut self, signal: Signal, limit: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(signal)?;
        let name = self.name.clone();
        let ended = eventually(limit, async || self.child.try_wait()).await;
        ended.with_context(|| format!("{name} did not end after {}:\n{}", signal.name(), self.log_tail()))
    }

    /// Freezes it. Returns when none of its threads runs any more.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::Stop)?;
        while self.is_running() && !is_frozen(self.id())? {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends [`Process::pause`].
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::Cont)
    }

    /// kill -9, as a crash would. Returns when it is gone.
    pub fn kill(&mut self) {
        // Both fail only when the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the check succeeds, or the process ends.
    ///
    /// # Errors
    /// When the process ends or the limit is over; the error shows the end of its log.
    pub async fn ready(&mut self, limit: Duration, mut check: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        while !check().await {
            if !self.is_running() {
                bail!("{} ended before it was ready:\n{}", self.name, self.log_tail());
            }
            if start.elapsed() > limit {
                bail!("{} was not ready within {limit:?}:\n{}", self.name, self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watcher first, so that it cannot signal a later process with the same id.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.signal(self.last_signal);
        let start = Instant::now();
        while self.is_running() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }
}

fn is_frozen(id: u32) -> anyhow::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        // A thread may end during the check.
        let stat = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        if stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn watch(child: &Child, last_signal: Signal, folder: &Path) -> anyhow::Result<Child> {
    // Ctrl-C and the end of the test runner signal the whole group; the watcher ignores them.
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        read -r _
        kill -s "$0" "$1"
        tries=0
        while kill -0 "$1" && [ "$tries" -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
        rm -rf -- "$2"
    "#;
    Command::new("sh")
        .args(["-c", SCRIPT, last_signal.name(), &child.id().to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the shell that watches a process")
}
