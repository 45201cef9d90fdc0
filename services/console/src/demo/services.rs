//! Stopping and starting services of the running suite, and never forgetting one that was stopped.

use std::{collections::BTreeSet, path::PathBuf, process::Stdio};

use anyhow::{Context, bail};
use tokio::process::Command;

/// The suite's processes, as the service script moves them.
pub(super) struct Services {
    command: PathBuf,
    stopped: BTreeSet<&'static str>,
}

impl Services {
    pub(super) fn new(command: PathBuf) -> Self {
        Services { command, stopped: BTreeSet::new() }
    }

    pub(super) async fn stop(&mut self, service: &'static str) -> anyhow::Result<()> {
        // Noted first: an interrupted stop is undone, too.
        self.stopped.insert(service);
        self.run("stop", service).await
    }

    pub(super) async fn start(&mut self, service: &'static str) -> anyhow::Result<()> {
        self.run("start", service).await?;
        self.stopped.remove(service);
        Ok(())
    }

    /// Starts every service that was stopped and not started again.
    pub(super) async fn start_stopped(&mut self) -> anyhow::Result<()> {
        while let Some(&service) = self.stopped.first() {
            self.start(service).await?;
        }
        Ok(())
    }

    async fn run(&self, verb: &str, service: &str) -> anyhow::Result<()> {
        let called = format!("{} {verb} {service}", self.command.display());
        let mut command = Command::new(&self.command);
        // The service gets its own access, not the auditor's. A group of its own, because Ctrl-C in
        // the terminal must not reach the script that brings a service back.
        for access in ["DATABASE_URL", "NATS_URL", "NATS_USER", "NATS_PASSWORD"] {
            command.env_remove(access);
        }
        let ended = command
            .args([verb, service])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .output()
            .await
            .with_context(|| format!("cannot run {called} (SERVICE_COMMAND names another command)"))?;
        if !ended.status.success() {
            bail!("{called} failed: {}", String::from_utf8_lossy(&ended.stderr).trim());
        }
        Ok(())
    }
}
