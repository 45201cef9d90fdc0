//! One replica of one service as a process of its own, which can be killed.

use std::{process::Command, time::Duration};

use anyhow::{Context, ensure};
use saga::Service;
use testkit::{Process, bin, eventually, free_port};

use crate::{Client, Stage};

pub struct Running {
    pub service: Service,
    pub process: Process,
    pub client: Client,
}

impl Running {
    /// Starts the real program, with these settings besides its addresses, and waits until it is ready.
    pub async fn start(stage: &Stage, service: Service, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_program(stage, service, service.0, settings).await
    }

    /// Starts another build of the program.
    pub async fn start_program(
        stage: &Stage,
        service: Service,
        program: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut running = Self::launch(stage, service, program, settings)?;
        running.ready().await.with_context(|| running.process.log())?;
        Ok(running)
    }

    /// The same, without waiting until it is ready.
    pub fn launch(stage: &Stage, service: Service, program: &str, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let address = format!("127.0.0.1:{}", free_port());
        let role = format!("{service}_service");
        let mut command = Command::new(bin(program)?);
        command
            .env("LISTEN", &address)
            .env("DATABASE_URL", stage.database.url_for(&format!("{role}:{role}")))
            .env("NATS_URL", &stage.nats_url)
            .env("GATEWAY_URL", &stage.gateway.base_url)
            .env("INVENTORY_URL", "http://127.0.0.1:1")
            .env("ALLOW_UNSAFE_DURABILITY", "true")
            .env("RELAY_LEASE", "1s")
            .env("RUST_LOG", "warn")
            .envs(settings.iter().copied());
        let process = Process::start(&mut command)?;
        Ok(Running { service, process, client: Client::new(&format!("http://{address}")) })
    }

    /// Waits until it is ready, but not for one that has ended.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let Running { process, client, .. } = self;
        eventually(Duration::from_secs(30), async || {
            !process.is_running() || client.get("/health/ready").await.is_ok_and(|answer| answer.status == 200)
        })
        .await?;
        ensure!(self.process.is_running(), "{} has ended", self.service);
        Ok(())
    }
}
