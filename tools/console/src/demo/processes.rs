//! Starts and stops the suite's processes: by a script on this machine, or, if the console runs in a container, by requests to
//! the host script that started the console.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, bail};
use tokio::process::Command;

use super::host_script::HostScript;

/// Settings that hold until a process is started again.
pub(super) type Settings<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Clone)]
pub(super) enum Processes {
    /// Called with a verb and the name of a process, the settings in its environment.
    Script(PathBuf),
    /// Receives the same as a request, with the settings after the name.
    HostScript(HostScript),
}

impl Processes {
    pub(super) async fn run(&self, verb: &str, process: &str) -> anyhow::Result<String> {
        self.run_with(verb, process, &[]).await
    }

    pub(super) async fn run_with(&self, verb: &str, process: &str, settings: Settings<'_>) -> anyhow::Result<String> {
        match self {
            Processes::Script(command) => call(command, verb, process, settings).await,
            Processes::HostScript(host) => host.request(&request(verb, process, settings)).await,
        }
    }

    /// Prevents the automatic restart of a process that is about to crash.
    pub(super) async fn let_crash(&self, process: &str) -> anyhow::Result<()> {
        match self {
            // Processes of the script are not restarted automatically.
            Processes::Script(_) => Ok(()),
            Processes::HostScript(_) => self.run("let-crash", process).await.map(drop),
        }
    }
}

fn request(verb: &str, process: &str, settings: Settings<'_>) -> String {
    let settings = settings.iter().map(|(name, value)| format!(" {name}={value}"));
    format!("service {verb} {process}{}", settings.collect::<String>())
}

async fn call(script: &PathBuf, verb: &str, process: &str, settings: Settings<'_>) -> anyhow::Result<String> {
    let called = format!("{} {verb} {process}", script.display());
    let mut command = Command::new(script);
    // The service must not inherit the auditor's access.
    for access in ["DATABASE_URL", "NATS_URL", "NATS_USER", "NATS_PASSWORD"] {
        command.env_remove(access);
    }
    let ended = command
        .args([verb, process])
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group of its own: Ctrl-C in the terminal must not reach the script that restores a service.
        .process_group(0)
        .output()
        .await
        .with_context(|| format!("cannot run {called} (SERVICE_COMMAND names another command)"))?;
    if !ended.status.success() {
        bail!("{called} failed: {}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_name() {
        assert_eq!(request("stop", "nats", &[]), "service stop nats");
        let settings = [("SAGA_DEADLINE", "4s"), ("RESILIENCE", "process_payment.open_for=5s")];
        let expected = "service restart order SAGA_DEADLINE=4s RESILIENCE=process_payment.open_for=5s";
        assert_eq!(request("restart", "order", &settings), expected);
    }
}
