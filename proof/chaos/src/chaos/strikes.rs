//! Carries out the schedule: each phase at its time, as soon as nobody else holds what it needs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::Mutex;

use crate::{
    history::{History, milliseconds},
    nemesis::{Resource, Strike, Tally},
    recovery::Struck,
    schedule::Phase,
    stage::Stage,
    workload::Pressure,
};

/// What all phases share.
pub(super) struct Field {
    pub(super) stage: Arc<Stage>,
    pub(super) history: Arc<History>,
    pub(super) pressure: Arc<Pressure>,
    pub(super) tally: Arc<Tally>,
}

type Holds = BTreeMap<Resource, Mutex<()>>;

const RESOURCES: [Resource; 7] = [
    Resource::Services,
    Resource::Broker,
    Resource::Database,
    Resource::Links,
    Resource::Gateway,
    Resource::Inventory,
    Resource::Load,
];

pub(super) async fn strike_all(field: &Field, phases: &[Phase]) -> Vec<Struck> {
    let holds: Holds = RESOURCES.into_iter().map(|resource| (resource, Mutex::new(()))).collect();
    // In one task: what a nemesis does is mostly waiting.
    let running = phases.iter().map(async |phase| {
        if let Some(wait) = phase.start.checked_sub(field.history.now()) {
            tokio::time::sleep(wait).await;
        }
        one(phase, field, &holds).await
    });
    let mut struck = join_all(running).await;
    struck.sort_by_key(|phase| phase.start_ms);
    struck
}

async fn one(phase: &Phase, field: &Field, holds: &Holds) -> Struck {
    /// What a nemesis may take beyond its time before it counts as one that does not heal.
    const PATIENCE: Duration = Duration::from_secs(120);
    let mut strike = Strike {
        stage: Arc::clone(&field.stage),
        pressure: Arc::clone(&field.pressure),
        tally: Arc::clone(&field.tally),
        length: phase.length,
        rng: StdRng::seed_from_u64(phase.seed),
        faults: 0,
        cured: None,
    };
    let history = &field.history;
    let mut held = Vec::new();
    for need in phase.nemesis.needs {
        // The snapshot is only held: it keeps nobody from breaking the database.
        if let Some(hold) = holds.get(need).filter(|_| phase.nemesis.name != "long_transaction") {
            held.push(hold.lock().await);
        }
    }
    let start_ms = history.now_ms();
    println!("{:>5} s  {}, {:.1} s", start_ms / 1_000, phase.nemesis.name, phase.length.as_secs_f64());
    let outcome = tokio::time::timeout(phase.length + PATIENCE, phase.nemesis.strike(&mut strike)).await;
    let error = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some("it did not come to its end".to_owned()),
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
