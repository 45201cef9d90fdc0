//! The suite's processes, as the service script moves them.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, bail};
use tokio::process::Command;

/// Settings that hold until a process is started again.
pub(super) type Settings<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Clone)]
pub(super) struct Processes {
    command: PathBuf,
}

impl Processes {
    pub(super) fn new(command: PathBuf) -> Self {
        Processes { command }
    }

    /// Calls the script with a verb for one process; what it prints.
    pub(super) async fn run(&self, verb: &str, process: &str) -> anyhow::Result<String> {
        self.run_with(verb, process, &[]).await
    }

    pub(super) async fn run_with(&self, verb: &str, process: &str, settings: Settings<'_>) -> anyhow::Result<String> {
        let called = format!("{} {verb} {process}", self.command.display());
        let mut command = Command::new(&self.command);
        // The service gets its own access, not the auditor's.
        for access in ["DATABASE_URL", "NATS_URL", "NATS_USER", "NATS_PASSWORD"] {
            command.env_remove(access);
        }
        let ended = command
            .args([verb, process])
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, because Ctrl-C in the terminal must not reach the script that brings a service back.
            .process_group(0)
            .output()
            .await
            .with_context(|| format!("cannot run {called} (SERVICE_COMMAND names another command)"))?;
        if !ended.status.success() {
            bail!("{called} failed: {}", String::from_utf8_lossy(&ended.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    }
}
