//! Processes of services that crash, hang or are replaced.

use std::{sync::Arc, time::Duration};

use contracts::SERVICES;
use rand::{Rng, seq::IndexedRandom};
use tokio::time::Instant;

use super::Strike;
use crate::testbed::Replica;

const READY_LIMIT: Duration = Duration::from_secs(60);

/// Kills one replica after the other, and starts each again soon.
pub(super) async fn kill(strike: &mut Strike) -> anyhow::Result<()> {
    let end = Instant::now() + strike.length;
    while Instant::now() < end {
        let victim = any(strike);
        victim.program.kill().await;
        strike.hit();
        let pause = Duration::from_millis(strike.rng.random_range(100..2_500));
        tokio::time::sleep_until(end.min(Instant::now() + pause)).await;
        strike.cures();
        victim.program.start().await?;
    }
    Ok(())
}

/// Freezes one replica, with all its connections and leases.
pub(super) async fn freeze(strike: &mut Strike) -> anyhow::Result<()> {
    let victim = any(strike);
    victim.program.freeze().await?;
    strike.hit();
    tokio::time::sleep(strike.length).await;
    victim.program.thaw().await
}

/// All replicas of one service are replaced, one at a time.
pub(super) async fn roll(strike: &mut Strike) -> anyhow::Result<()> {
    let service = *SERVICES.choose(&mut strike.rng).unwrap_or(&SERVICES[0]);
    for replica in strike.run.testbed.replicas_of(service) {
        replica.program.stop().await?;
        strike.hit();
        strike.cures();
        replica.program.start().await?;
        // Another nemesis may keep a replica from becoming ready; then the next one is replaced after this limit.
        let _ = strike.run.testbed.ready_one(&replica, READY_LIMIT).await;
    }
    Ok(())
}

fn any(strike: &mut Strike) -> Arc<Replica> {
    let place = strike.rng.random_range(0..strike.run.testbed.replicas.len());
    Arc::clone(&strike.run.testbed.replicas[place])
}
