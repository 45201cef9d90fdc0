//! Carries out the schedule: each phase at its time, as soon as its resources are free.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::Mutex;

use crate::{
    history::milliseconds,
    nemesis::{Resource, Strike},
    recovery::Struck,
    schedule::Phase,
    workload::Run,
};

type Locks = BTreeMap<Resource, Mutex<()>>;

pub(super) async fn strike_all(run: &Arc<Run>, phases: &[Phase]) -> Vec<Struck> {
    let locks: Locks = phases.iter().map(|phase| (phase.nemesis.needs, Mutex::default())).collect();
    // In one task, because nemeses mostly wait.
    let running = phases.iter().map(async |phase| {
        if let Some(wait) = phase.start.checked_sub(run.history.now()) {
            tokio::time::sleep(wait).await;
        }
        strike_one(phase, run, &locks).await
    });
    let mut struck = join_all(running).await;
    struck.sort_by_key(|phase| phase.start_ms);
    struck
}

async fn strike_one(phase: &Phase, run: &Arc<Run>, locks: &Locks) -> Struck {
    /// The time that a nemesis may take beyond its length before it counts as failed to heal.
    const HEAL_LIMIT: Duration = Duration::from_secs(120);
    let mut strike = Strike {
        run: Arc::clone(run),
        length: phase.length,
        rng: StdRng::seed_from_u64(phase.seed),
        faults: 0,
        cured: None,
    };
    let history = &run.history;
    // It only holds a snapshot, so other nemeses may break the database meanwhile.
    let shares = phase.nemesis.name == "long_transaction";
    let _held = if shares { None } else { Some(locks[&phase.nemesis.needs].lock().await) };
    let start_ms = history.now_ms();
    println!("{:>5} s  {}, {:.1} s", start_ms / 1_000, phase.nemesis.name, phase.length.as_secs_f64());
    let outcome = tokio::time::timeout(phase.length + HEAL_LIMIT, (phase.nemesis.strike)(&mut strike)).await;
    let error = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some("it did not end within its time limit".to_owned()),
    };
    let since_cured = strike.cured.map(|cured| cured.elapsed()).unwrap_or_default();
    Struck {
        nemesis: phase.nemesis.name,
        kind: phase.nemesis.kind,
        start_ms,
        healed_ms: history.now_ms().saturating_sub(milliseconds(since_cured)),
        faults: strike.faults,
        error,
    }
}
