//! The suite that is measured, moved by the scripts: started and stopped, put under load, audited.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use tokio::process::Command;

use crate::{load::Load, processes::Processes};

/// The services that take part in sagas.
pub(crate) const SERVICES: [&str; 3] = ["inventory", "payment", "order"];

/// The orders of all figures: all go well, and each has two lines.
const ORDERS: [&str; 8] = ["--declines", "0", "--cancels", "0", "--scarce", "0", "--lines", "2"];

pub(crate) struct Stage {
    scripts: PathBuf,
    run: PathBuf,
    pub(crate) quick: bool,
    /// How many orders are open when the suite is saturated.
    pub(crate) in_flight: u32,
}

impl Stage {
    pub(crate) fn new(scripts: PathBuf, run: PathBuf, quick: bool, in_flight: u32) -> anyhow::Result<Self> {
        let scripts = scripts.canonicalize().with_context(|| format!("there is no {}", scripts.display()))?;
        ensure!(run.join("env").exists(), "{} holds no suite: ./scripts/bench starts one", run.display());
        Ok(Stage { scripts, run, quick, in_flight })
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run
    }

    /// How long something is measured.
    pub(crate) fn time(&self, usual: u64, quick: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { usual })
    }

    /// `verb` for some processes of the suite. The settings hold until the next start.
    pub(crate) async fn service(&self, verb: &str, names: &[&str], settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut command = self.script("service");
        command.arg(verb).args(names).envs(settings.iter().copied());
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "service {verb} {} failed: {said}", names.join(" "));
        Ok(())
    }

    /// Saturates the suite for a time, of which the beginning is not measured.
    pub(crate) async fn saturate(&self, warm_up: Duration, time: Duration, more: &[&str]) -> anyhow::Result<Load> {
        let in_flight = self.in_flight.to_string();
        let mut arguments = vec!["--in-flight", &in_flight];
        arguments.extend(more);
        self.load(warm_up, time, &arguments).await
    }

    /// Puts the suite under load. What is not measured at the beginning comes on top of the time.
    ///
    /// # Errors
    /// Also when an order did not end well.
    pub(crate) async fn load(&self, warm_up: Duration, time: Duration, more: &[&str]) -> anyhow::Result<Load> {
        let file = self.run.join("load.json");
        let _ = fs::remove_file(&file);
        let mut command = self.script("load");
        command.args(ORDERS).args(more).arg("--json").arg(&file);
        command.arg("--for").arg(format!("{}ms", (warm_up + time).as_millis()));
        command.arg("--warm-up").arg(format!("{}ms", warm_up.as_millis()));
        let status = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status().await?;
        let text = fs::read_to_string(&file).with_context(|| format!("the load left no result ({status})"))?;
        let load: Load = serde_json::from_str(&text).context("the load's result cannot be read")?;
        if !load.passed {
            bail!("{} of {} orders did not end well: {}", load.defects.len(), load.orders, load.defects[0]);
        }
        Ok(load)
    }

    /// Whether the audit is clean. What it found is said.
    pub(crate) async fn audit(&self) -> anyhow::Result<bool> {
        let output = self.script("audit").args(["--settle", "60s"]).output().await?;
        if !output.status.success() {
            eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.status.success())
    }

    /// The processes that run now.
    pub(crate) fn processes(&self) -> anyhow::Result<Processes> {
        Processes::of(&self.run)
    }

    /// What was chosen when the suite was started: ports, passwords, addresses.
    pub(crate) fn settings(&self) -> anyhow::Result<HashMap<String, String>> {
        let text = fs::read_to_string(self.run.join("env"))?;
        Ok(text.lines().filter_map(setting).collect())
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.scripts.join(name));
        command.env("SUITE_RUN_DIR", &self.run).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// A line of the suite's settings, `NAME="${NAME-VALUE}"`.
fn setting(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let value = value.strip_prefix("\"${")?.strip_suffix("}\"")?.strip_prefix(name)?.strip_prefix('-')?;
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_default_in_the_language_of_the_shell() {
        let line = r#"ORDER_URL="${ORDER_URL-http://127.0.0.1:8081}""#;
        assert_eq!(setting(line), Some(("ORDER_URL".to_owned(), "http://127.0.0.1:8081".to_owned())));
        assert_eq!(setting("# nothing"), None);
    }
}
