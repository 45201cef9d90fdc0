//! One replica of one service as a process, which can be killed.

use std::process::Command;

use anyhow::{Context, ensure};
use contracts::{INVENTORY, ORDER, PAYMENT};
use saga::Service;
use testkit::{Process, bin, free_port};

use crate::{Client, TestSuite, eventually};

pub struct Running {
    pub service: Service,
    pub process: Process,
    pub client: Client,
}

impl Running {
    /// Order, inventory and payment, with the product A for sale.
    pub async fn participants(suite: &TestSuite, settings: &[(&str, &str)]) -> anyhow::Result<[Running; 3]> {
        let order = Self::start(suite, ORDER, settings).await?;
        let inventory = Self::start(suite, INVENTORY, settings).await?;
        let payment = Self::start(suite, PAYMENT, settings).await?;
        // A service that has just started may shed the first requests.
        eventually(async || {
            let created = inventory.client.create_product("A", 100, 100_000).await;
            created.is_ok_and(|answer| matches!(answer.status, 201 | 409))
        })
        .await?;
        eventually(async || order.client.get("/api/products/A").await.is_ok_and(|a| a.status == 200)).await?;
        Ok([order, inventory, payment])
    }

    /// Starts the real program, with these settings besides its addresses, and waits until it is ready.
    pub async fn start(suite: &TestSuite, service: Service, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_program(suite, service, service.0, settings).await
    }

    /// Starts another build of the program.
    pub async fn start_program(
        suite: &TestSuite,
        service: Service,
        program: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut running = Self::launch(suite, service, program, settings)?;
        running.ready().await.with_context(|| running.process.log())?;
        Ok(running)
    }

    /// Starts the real program at this address.
    pub async fn at(suite: &TestSuite, service: Service, address: &str) -> anyhow::Result<Self> {
        let mut running = Self::launch(suite, service, service.0, &[("LISTEN", address)])?;
        running.client = Client::new(&format!("http://{address}"));
        running.ready().await.with_context(|| running.process.log())?;
        Ok(running)
    }

    /// The same, without waiting until it is ready.
    pub fn launch(
        suite: &TestSuite,
        service: Service,
        program: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let address = format!("127.0.0.1:{}", free_port());
        let role = format!("{service}_service");
        let mut command = Command::new(bin(program)?);
        command
            .env("LISTEN", &address)
            .env("DATABASE_URL", suite.database.url_for(&format!("{role}:{role}")))
            .env("NATS_URL", &suite.nats_url)
            .env("GATEWAY_URL", &suite.gateway.base_url)
            .env("INVENTORY_URL", "http://127.0.0.1:1")
            .env("PAYMENT_URL", "http://127.0.0.1:1")
            .env("ALLOW_UNSAFE_DURABILITY", "true")
            .env("RELAY_LEASE", "1s")
            .env("RUST_LOG", "warn")
            .envs(settings.iter().copied());
        let process = Process::start(&mut command)?;
        Ok(Running { service, process, client: Client::new(&format!("http://{address}")) })
    }

    /// An auditor in watch mode.
    pub fn auditor(suite: &TestSuite, every: &str) -> anyhow::Result<(Client, Process)> {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Self::console(suite, &["audit", "--watch", "--every", every, "--listen", &address])?;
        Ok((Client::new(&format!("http://{address}")), Process::start(&mut command)?))
    }

    /// A command of the console, which reads this suite.
    pub fn console(suite: &TestSuite, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(bin("console")?);
        command
            .args(arguments)
            .args(["--nats-user", "", "--nats-url", &suite.nats_url, "--gateway-url", &suite.gateway.base_url])
            .args(["--database-url", &suite.database.url_for("auditor")]);
        Ok(command)
    }

    /// Waits until it is ready, and fails when the process has ended.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let Running { process, client, .. } = self;
        eventually(async || {
            !process.is_running() || client.get("/health/ready").await.is_ok_and(|answer| answer.status == 200)
        })
        .await?;
        ensure!(self.process.is_running(), "{} has ended", self.service);
        Ok(())
    }
}
