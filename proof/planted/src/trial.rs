//! One trial: a suite with a mistake, or the same programs without it, is provoked and audited.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chaos::{Settings, Testbed};
use serde::Serialize;

use crate::{
    bug::Bug,
    experiment::{Experiment, PLENTY},
    oracle::{self, Detection},
};

/// Settings of all trials: intervals of minutes become seconds.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("COMPENSATION_DEADLINE", "8s"),
    ("COMPENSATION_CHECK_EVERY", "500ms"),
    ("TIMEOUT_CHECK_EVERY", "500ms"),
    ("RELAY_LEASE", "1s"),
    ("RECONCILE_EVERY", "1s"),
    ("REPLENISH_ENABLED", "false"),
];
/// A mistake that keeps the suite from coming to rest uses up all of it.
const SETTLE: Duration = Duration::from_secs(30);

/// The result of a trial.
#[derive(Debug, Serialize)]
pub struct Trial {
    pub findings: Vec<Detection>,
    /// How often a fault struck.
    pub hits: i64,
    /// Why the trial could not be carried out.
    pub failure: Option<String>,
    pub seconds: f64,
}

/// Runs the trial of `bug`, with the mistake or without.
pub async fn run(bug: &Bug, mistaken: bool, programs: &Path, reports: &Path) -> Trial {
    let began = Instant::now();
    let ((findings, hits), failure) = match try_to_run(bug, mistaken, programs, reports).await {
        Ok(found) => (found, None),
        Err(error) => ((Vec::new(), 0), Some(format!("{error:#}"))),
    };
    Trial { findings, hits, failure, seconds: began.elapsed().as_secs_f64() }
}

/// The detections, and the number of fault hits.
async fn try_to_run(
    bug: &Bug,
    mistaken: bool,
    programs: &Path,
    reports: &Path,
) -> anyhow::Result<(Vec<Detection>, i64)> {
    let logs = reports.join("planted").join(bug.name).join(if mistaken { "mistaken" } else { "sound" });
    let planted = [("PLANTED", if mistaken { bug.name } else { "" })];
    let settings = Settings::new(programs.to_owned(), logs, bug.replicas)?;
    let testbed = Testbed::start(&settings.with(&planted).with(bug.settings).with(SETTINGS)).await?;
    testbed.sell(PLENTY, 1_000, 1_000_000).await?;
    let mut experiment = Experiment::new(testbed);
    let examined = provoke_and_examine(bug, &mut experiment).await;
    experiment.testbed.save_logs().await?;
    examined?;
    let hits = sqlx::query_scalar("select count(*) from saga.fault_hit");
    let hits: i64 = hits.fetch_one(&experiment.testbed.pool).await?;
    ensure!(!experiment.armed || hits > 0, "a fault was armed and never hit, so nothing was provoked");
    Ok((experiment.findings, hits))
}

async fn provoke_and_examine(bug: &Bug, experiment: &mut Experiment) -> anyhow::Result<()> {
    let provoked = (bug.provoke)(experiment).await;
    if let Err(error) = &provoked {
        println!("the provocation did not complete: {error:#}");
    }
    if experiment.findings.is_empty() {
        experiment.findings = oracle::at_rest(experiment, SETTLE).await?;
    }
    // A mistake may keep the provocation from completing.
    if experiment.findings.is_empty() { provoked } else { Ok(()) }
}
