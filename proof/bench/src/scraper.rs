//! A Prometheus that scrapes the suite every five seconds, as it would in operation.

use std::{fs, path::PathBuf, process::Stdio};

use anyhow::Context;
use tokio::process::{Child, Command};

use crate::stage::{Stage, services};

pub(crate) struct Scraper {
    process: Child,
    folder: PathBuf,
}

impl Scraper {
    pub(crate) fn start(stage: &Stage) -> anyhow::Result<Self> {
        let program = &stage.prometheus;
        let folder = stage.run_dir().join("scraper");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let configuration = folder.join("prometheus.yml");
        fs::write(&configuration, configuration_of(stage)?)?;
        let log = fs::File::create(folder.join("log"))?;
        let process = Command::new(program)
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .arg("--enable-feature=exemplar-storage")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("Prometheus cannot be started")?;
        Ok(Scraper { process, folder })
    }

    /// Stops it and forgets what it has scraped.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("Prometheus cannot be stopped")?;
        fs::remove_dir_all(self.folder.join("data")).context("Prometheus has kept nothing")
    }
}

fn configuration_of(stage: &Stage) -> anyhow::Result<String> {
    let settings = stage.settings()?;
    let mut jobs = String::new();
    for name in services().iter().chain(&["gateway"]).map(|name| name.to_uppercase()) {
        let port = settings.get(&format!("{name}_PORT")).with_context(|| format!("{name} has no port"))?;
        jobs += &format!("  - job_name: {name}\n    static_configs: [{{ targets: ['127.0.0.1:{port}'] }}]\n");
    }
    Ok(format!("global: {{ scrape_interval: 5s }}\nscrape_configs:\n{jobs}"))
}
