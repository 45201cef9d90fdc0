//! A private Prometheus and a private Alertmanager, each with the configuration that a test gives it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::process::{Process, Signal};
use crate::programs::{alertmanager, prometheus};
use crate::wait::free_port;

const START_LIMIT: Duration = Duration::from_secs(30);

/// A Prometheus on a port and with data of its own. It keeps exemplars.
#[derive(Debug)]
pub struct Prometheus {
    server: Server,
}

/// An Alertmanager on a port and with data of its own. It looks for no others.
#[derive(Debug)]
pub struct Alertmanager {
    server: Server,
}

#[derive(Debug)]
struct Server {
    // Dropped before the folder that it uses.
    process: Process,
    port: u16,
    _folder: Arc<TempDir>,
}

impl Prometheus {
    /// Starts one with this configuration (YAML). Returns when it answers queries.
    ///
    /// # Errors
    /// When there is no Prometheus on this machine, or it does not start; the error shows what it has said.
    pub async fn start(config: &str) -> anyhow::Result<Self> {
        let arguments = |data: PathBuf| {
            let data = format!("--storage.tsdb.path={}", data.display());
            [data, "--enable-feature=exemplar-storage".to_owned(), "--log.level=warn".to_owned()]
        };
        Ok(Prometheus { server: Server::start("prometheus", prometheus()?, config, arguments).await? })
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// What it has logged: complaints only.
    pub fn log(&self) -> String {
        self.server.process.log()
    }
}

impl Alertmanager {
    /// Starts one with this configuration (YAML).
    ///
    /// # Errors
    /// When there is no Alertmanager on this machine, or it does not start; the error shows what it has said.
    pub async fn start(config: &str) -> anyhow::Result<Self> {
        let arguments = |data: PathBuf| {
            let data = format!("--storage.path={}", data.display());
            [data, "--cluster.listen-address=".to_owned(), "--log.level=warn".to_owned()]
        };
        Ok(Alertmanager { server: Server::start("alertmanager", alertmanager()?, config, arguments).await? })
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// What it has logged: complaints only.
    pub fn log(&self) -> String {
        self.server.process.log()
    }
}

impl Server {
    async fn start(
        name: &str,
        program: PathBuf,
        config: &str,
        arguments: impl FnOnce(PathBuf) -> [String; 3],
    ) -> anyhow::Result<Self> {
        let (folder, port) = (Arc::new(TempDir::new()?), free_port());
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config).context("the configuration cannot be written")?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(arguments(folder.path().join("data")));
        let mut process = Process::start_in(folder.clone(), name, &mut command, Signal::Kill)?;
        process.ready(START_LIMIT, async || is_ready(port)).await?;
        Ok(Server { process, port, _folder: folder })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
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
