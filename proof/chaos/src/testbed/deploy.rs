//! Replaces the running build of the suite, as a deployment does.

use std::{path::Path, process::Command};

use anyhow::{Context, ensure};

use super::{READY_LIMIT, Replica, Settings, Testbed, users};

impl Testbed {
    /// Provisions database and broker for this build, as before its first replica, and replaces the topology reconciler.
    pub async fn provision_for(&self, build: &Settings) -> anyhow::Result<()> {
        let printed = Command::new(build.programs.join("provision")).arg("nats-conf").output()?;
        ensure!(printed.status.success(), "provision nats-conf: {}", String::from_utf8_lossy(&printed.stderr));
        let production = String::from_utf8(printed.stdout).context("a configuration that is no text")?;
        users::write_configuration(self.folder.path(), &production)?;
        self.nats.lock().await.reload()?;
        let owner = self.postgres.lock().await.server().url("suite");
        build.provision("provision", &[], &owner, self.nats_url.clone())?.run(READY_LIMIT).await?;
        self.reconciler.replace(&build.programs).await
    }

    /// Stops a replica gracefully, and starts it as another build.
    pub async fn replace(&self, replica: &Replica, programs: &Path) -> anyhow::Result<()> {
        replica.program.replace(programs).await?;
        self.ready_one(replica, READY_LIMIT).await
    }
}
