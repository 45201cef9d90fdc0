//! A private Prometheus and a private Alertmanager, each with a test's configuration.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::process::{Process, Signal};
use crate::programs::program;
use crate::wait::free_port;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A Prometheus or an Alertmanager with a private port and data.
#[derive(Debug)]
pub struct Monitor {
    // Dropped before the folder that it uses.
    process: Process,
    port: u16,
    _folder: Arc<TempDir>,
}

impl Monitor {
    /// Starts a Prometheus with this configuration (YAML), which keeps exemplars. Returns when it answers queries.
    ///
    /// # Errors
    /// When it is not installed, or does not start; the error shows its log.
    pub async fn prometheus(config: &str) -> anyhow::Result<Self> {
        let own = "--enable-feature=exemplar-storage";
        let program = program("PROMETHEUS_BIN", "bin", &["prometheus"])?;
        Self::start("prometheus", program, config, "--storage.tsdb.path", own).await
    }

    /// Starts an Alertmanager with this configuration (YAML), without clustering.
    ///
    /// # Errors
    /// As [`Monitor::prometheus`].
    pub async fn alertmanager(config: &str) -> anyhow::Result<Self> {
        // Debian calls it prometheus-alertmanager.
        let program = program("ALERTMANAGER_BIN", "bin", &["prometheus-alertmanager", "alertmanager"])?;
        Self::start("alertmanager", program, config, "--storage.path", "--cluster.listen-address=").await
    }

    async fn start(name: &str, program: PathBuf, config: &str, data: &str, own: &str) -> anyhow::Result<Self> {
        let (folder, port) = (Arc::new(TempDir::new()?), free_port());
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config).context("the configuration cannot be written")?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg(format!("{data}={}", folder.path().join("data").display()))
            .args([own, "--log.level=warn"]);
        let mut process = Process::start_in(folder.clone(), name, &mut command, Signal::Kill)?;
        process.ready(START_TIMEOUT, async || is_ready(port)).await?;
        Ok(Monitor { process, port, _folder: folder })
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its log: warnings and errors only.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", port))?;
        connection.set_read_timeout(Some(Duration::from_secs(1)))?;
        connection.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}
