//! One trial: a suite with a mistake, or the same programs without it, provoked and examined.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chaos::{Settings, Stage};
use serde::Serialize;

use crate::{
    bug::Bug,
    oracle::{self, Finding},
    scene::{PLENTY, Scene},
};

/// For all trials: what happens once a minute otherwise happens within seconds.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("COMPENSATION_DEADLINE", "8s"),
    ("COMPENSATION_CHECK_EVERY", "500ms"),
    ("TIMEOUT_CHECK_EVERY", "500ms"),
    ("RELAY_LEASE", "1s"),
    ("RECONCILE_EVERY", "1s"),
    ("REPLENISH_ENABLED", "false"),
];
/// A mistake that keeps the suite from settling costs all of it.
const SETTLE: Duration = Duration::from_secs(30);

/// What became of it.
#[derive(Debug, Serialize)]
pub struct Trial {
    pub findings: Vec<Finding>,
    /// How often a fault struck.
    pub hits: i64,
    /// Why it could not be carried out.
    pub failure: Option<String>,
    pub seconds: f64,
}

/// Holds the trial of `bug`, with the mistake or without.
pub async fn hold(bug: &Bug, mistaken: bool, programs: &Path, reports: &Path) -> Trial {
    let began = Instant::now();
    let ((findings, hits), failure) = match try_to_hold(bug, mistaken, programs, reports).await {
        Ok(found) => (found, None),
        Err(error) => ((Vec::new(), 0), Some(format!("{error:#}"))),
    };
    Trial { findings, hits, failure, seconds: began.elapsed().as_secs_f64() }
}

/// What was found, and how often a fault struck.
async fn try_to_hold(
    bug: &Bug,
    mistaken: bool,
    programs: &Path,
    reports: &Path,
) -> anyhow::Result<(Vec<Finding>, i64)> {
    let logs = reports.join("planted").join(bug.name).join(if mistaken { "mistaken" } else { "sound" });
    let planted = [("PLANTED", if mistaken { bug.name } else { "" })];
    let settings = Settings::new(programs.to_owned(), logs, bug.replicas)?;
    let stage = Stage::start(&settings.with(&planted).with(bug.settings).with(SETTINGS)).await?;
    stage.sell(PLENTY, 1_000, 1_000_000).await?;
    let mut scene = Scene::new(stage);
    let examined = provoke_and_examine(bug, &mut scene).await;
    scene.stage.save_logs().await?;
    examined?;
    let hits = scene.hits().await?;
    ensure!(!scene.armed || hits > 0, "a fault was armed and never struck, so nothing was provoked");
    Ok((scene.findings, hits))
}

async fn provoke_and_examine(bug: &Bug, scene: &mut Scene) -> anyhow::Result<()> {
    let provoked = (bug.provoke)(scene).await;
    if scene.findings.is_empty() {
        scene.findings = oracle::in_the_end(scene, SETTLE).await?;
    }
    // A mistake may well keep the provocation from coming to its end.
    if scene.findings.is_empty() { provoked } else { Ok(()) }
}
