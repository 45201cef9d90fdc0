//! Another build of the suite in the place of the one that runs, as a deployment puts it there.

use std::{path::Path, process::Command};

use anyhow::{Context, ensure};

use super::{READY_LIMIT, Replica, Settings, Stage, users};

impl Stage {
    /// Makes database and broker what this build needs, which comes before its first replica; from then on the keeper is
    /// this build's, too.
    pub async fn provision_for(&self, build: &Settings) -> anyhow::Result<()> {
        let printed = Command::new(build.programs.join("provision")).arg("nats-conf").output()?;
        ensure!(printed.status.success(), "provision nats-conf: {}", String::from_utf8_lossy(&printed.stderr));
        let production = String::from_utf8(printed.stdout).context("a configuration that is no text")?;
        users::write_configuration(self.folder.path(), &production)?;
        self.nats.lock().await.reload()?;
        let owner = self.postgres.lock().await.server().url("suite");
        build.provision("provision", &[], &owner, self.nats_url.clone())?.run(READY_LIMIT).await?;
        self.keeper.replace(&build.programs).await
    }

    /// Lets a replica finish what it is doing, and starts it as another build.
    pub async fn replace(&self, replica: &Replica, programs: &Path) -> anyhow::Result<()> {
        replica.program.replace(programs).await?;
        self.ready_one(replica, READY_LIMIT).await
    }
}
