//! The quick forms of the experiments, with the programs of this build.

use std::time::Duration;

use anyhow::{Context, ensure};
use chaos::{
    Settings,
    chaos::{Plan, chaos},
    nemesis,
    report::Demands,
    restore,
    sweep::{Selection, sweep},
};
use faults::FaultPoint;

type Test = anyhow::Result<()>;

fn settings(logs: &tempfile::TempDir, replicas: usize, environment: &[(&str, &str)]) -> anyhow::Result<Settings> {
    let programs = testkit::bin("order")?.parent().context("a program in no folder")?.to_owned();
    Ok(Settings::new(programs, logs.path().join("logs"), replicas)?.with(environment))
}

fn plan(names: &[&str], seconds: u64) -> anyhow::Result<Plan> {
    let named = |name: &&str| nemesis::named(name).with_context(|| format!("no nemesis {name}"));
    Ok(Plan {
        seed: 1,
        length: Duration::from_secs(seconds),
        rate: 15,
        nemeses: names.iter().map(named).collect::<anyhow::Result<_>>()?,
        longest_phase: Duration::from_secs(3),
        settle: Duration::from_secs(90),
        // Production's: other tests take turns beside this one, and nothing excuses an order that they delay.
        deadline: None,
        demands: Demands { most_cancelled_percent: 0.0, orders: 100, faults: 1, nemeses: names.len(), recovery: false },
    })
}

#[tokio::test]
async fn a_crash_at_the_second_pass_of_a_point_loses_nothing() -> Test {
    let logs = tempfile::tempdir()?;
    let points = [FaultPoint::BeforeCommit, FaultPoint::AfterPublishBeforeMark, FaultPoint::AfterChargeBeforeRecord];
    let selection = Selection { points: &points, hits: &[2], steps: &[] };
    let report = sweep(&settings(&logs, 1, &[])?, &selection).await?;
    ensure!(report.passed() && report.points_hit == 3, "{report}");
    Ok(())
}

#[tokio::test]
async fn a_killed_service_and_a_wiped_broker_lose_nothing() -> Test {
    let logs = tempfile::tempdir()?;
    let report = chaos(&settings(&logs, 2, &[])?, &plan(&["kill_service", "wipe_nats"], 55)?).await?;
    ensure!(report.failures().is_empty(), "{report}");
    Ok(())
}

#[tokio::test]
async fn half_open_connections_are_given_up() -> Test {
    let logs = tempfile::tempdir()?;
    let nemeses = ["postgres_half_open", "keeper_half_open"];
    let plan = Plan { deadline: Some("20s"), ..plan(&nemeses, 40)? };
    let report = chaos(&settings(&logs, 2, &[])?, &plan).await?;
    ensure!(report.failures().is_empty(), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_suite_without_its_inbox_fails_the_audit() -> Test {
    let logs = tempfile::tempdir()?;
    let settings = settings(&logs, 2, &[("WITHOUT", "inbox")])?;
    let report = chaos(&settings, &Plan { settle: Duration::from_secs(15), ..plan(&["old_events"], 40)? }).await?;
    ensure!(
        report.audit.iter().any(|violation| violation.starts_with("acknowledged_was_had")),
        "the audit reports no violation:\n{report}"
    );
    Ok(())
}

#[tokio::test]
async fn a_restored_database_leaves_no_cent_and_no_unit_unexplained() -> Test {
    let logs = tempfile::tempdir()?;
    let [before, after, settle] = [5, 5, 90].map(Duration::from_secs);
    let plan = restore::Plan { seed: 1, rate: 15, before, after, settle };
    let report = restore::restore(&settings(&logs, 2, &[])?, &plan).await?;
    ensure!(report.passed(), "{report}");
    Ok(())
}
