//! One crash: have somebody pass the armed point until the process is gone, and start it again. And the end of a group
//! of crashes: everything settles, the books are right, and whatever a client was told is true.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use console::audit::Options;

use super::{Case, CaseReport, GroupReport, Shared, provoke, told::Told};

const READY_LIMIT: Duration = Duration::from_secs(30);
const SETTLE_LIMIT: Duration = Duration::from_secs(40);
/// How many broken promises are shown.
const EXAMPLES: usize = 5;

pub(super) async fn play(stage: &Shared, case: &Case, told: &mut Told) -> CaseReport {
    let mut report = CaseReport::new(case);
    let began = Instant::now();
    if let Err(error) = try_to_play(stage, case, &mut report, told).await {
        report.failure = Some(format!("{error:#}"));
    }
    report.took_ms = began.elapsed().as_millis();
    report
}

async fn try_to_play(stage: &Shared, case: &Case, report: &mut CaseReport, told: &mut Told) -> anyhow::Result<()> {
    let victim = stage.replicas_of(case.service).into_iter().next().context("nobody runs the service")?;
    let hits_before = crashes(stage, case).await?;
    let provoked = provoke::provoke(stage, case, &victim).await;
    if let Ok((_, crowd)) = &provoked {
        crowd.stop();
    }
    // Whatever came of it, the next case finds everybody well and nothing armed.
    let restarted = Instant::now();
    provoke::disarm(stage, &victim).await;
    victim.program.start().await?;
    stage.ready(READY_LIMIT).await?;
    report.ready_ms = restarted.elapsed().as_millis();
    let (gone, crowd) = provoked?;
    let more = crowd.leave().await?;
    report.orders = more.accepted.len();
    told.add(more);
    report.hit_recorded = crashes(stage, case).await? > hits_before;
    let limit = provoke::CRASH_LIMIT;
    ensure!(gone, "the process did not crash within {limit:?}: nothing passes this point that often");
    ensure!(report.hit_recorded, "the crash is not in the journal of hits, or in another step");
    Ok(())
}

/// How many crashes there were at this point in this service, and in this step if one is asked for.
async fn crashes(stage: &Shared, case: &Case) -> anyhow::Result<i64> {
    // Where no event sets the step in motion, the journal knows of no step.
    let count = sqlx::query_scalar(
        "select count(*)
        from saga.fault_hit
        where kind = 'crash' and point = $1 and service = $2 and (not $3 or step is not distinct from $4)",
    );
    let count = count.bind(case.point.as_str()).bind(case.service.0);
    Ok(count.bind(case.step.is_some()).bind(case.step_of_event()).fetch_one(&stage.pool).await?)
}

/// The end of a group of so many crashes.
pub(super) async fn settle(stage: &Shared, crashes: usize, told: &Told) -> GroupReport {
    let began = Instant::now();
    let failure = try_to_settle(stage, told).await.err().map(|error| format!("{error:#}"));
    GroupReport { crashes, orders: told.accepted.len(), settled_ms: began.elapsed().as_millis(), failure }
}

async fn try_to_settle(stage: &Shared, told: &Told) -> anyhow::Result<()> {
    let audit = stage.audit(Options { settle: SETTLE_LIMIT, ..Default::default() }).await?;
    let broken = told.broken_promises(&stage.pool).await?;
    let examples = broken.iter().take(EXAMPLES).cloned().collect::<Vec<_>>().join("; ");
    ensure!(broken.is_empty(), "{} promises are broken: {examples}\n{audit}", broken.len());
    ensure!(audit.clean, "the audit found violations:\n{audit}");
    Ok(())
}
