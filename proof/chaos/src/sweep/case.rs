//! One crash: clients pass the armed point until the process aborts, and it is started again. After a group of crashes the suite
//! must come to rest, the audit must be clean, and every answer to a client must hold.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use console::audit::Options;

use super::{Case, CaseReport, GroupReport, Shared, answers::Answers, provoke};

const READY_LIMIT: Duration = Duration::from_secs(30);
const SETTLE_LIMIT: Duration = Duration::from_secs(40);
/// The number of broken promises shown.
const EXAMPLES: usize = 5;

pub(super) async fn crash(testbed: &Shared, case: &Case, answers: &mut Answers) -> CaseReport {
    let mut report = CaseReport::new(case);
    let began = Instant::now();
    if let Err(error) = try_to_crash(testbed, case, &mut report, answers).await {
        report.failure = Some(format!("{error:#}"));
    }
    report.took_ms = began.elapsed().as_millis();
    report
}

async fn try_to_crash(
    testbed: &Shared,
    case: &Case,
    report: &mut CaseReport,
    answers: &mut Answers,
) -> anyhow::Result<()> {
    let victim = testbed.replicas_of(case.service).into_iter().next().context("the service has no replica")?;
    let hits_before = crashes(testbed, case).await?;
    let provoked = provoke::provoke(testbed, case, &victim).await;
    if let Ok((_, clients)) = &provoked {
        clients.stop();
    }
    // In any case, the next one must find every replica ready and nothing armed.
    let restarted = Instant::now();
    provoke::disarm(testbed, &victim).await;
    victim.program.start().await?;
    testbed.ready(READY_LIMIT).await?;
    report.ready_ms = restarted.elapsed().as_millis();
    let (gone, clients) = provoked?;
    let more = clients.finish().await?;
    report.orders = more.accepted.len();
    answers.add(more);
    report.hit_recorded = crashes(testbed, case).await? > hits_before;
    let limit = provoke::CRASH_LIMIT;
    ensure!(gone, "the process did not crash within {limit:?}: nothing passes this point that often");
    ensure!(report.hit_recorded, "the crash is not in the journal of hits, or in another step");
    Ok(())
}

/// The number of crashes at this point in this service, and in the case's step if it has one.
async fn crashes(testbed: &Shared, case: &Case) -> anyhow::Result<i64> {
    // The journal has no step where no event triggers it.
    let count = sqlx::query_scalar(
        "select count(*)
        from saga.fault_hit
        where kind = 'crash' and point = $1 and service = $2 and (not $3 or step is not distinct from $4)",
    );
    let count = count.bind(case.point.as_str()).bind(case.service.0);
    Ok(count.bind(case.step.is_some()).bind(case.scope()).fetch_one(&testbed.pool).await?)
}

/// Judges the suite after a group of `crashes` crashes.
pub(super) async fn judge_group(testbed: &Shared, crashes: usize, answers: &Answers) -> GroupReport {
    let began = Instant::now();
    let failure = check_answers_and_audit(testbed, answers).await.err().map(|error| format!("{error:#}"));
    GroupReport { crashes, orders: answers.accepted.len(), settled_ms: began.elapsed().as_millis(), failure }
}

async fn check_answers_and_audit(testbed: &Shared, answers: &Answers) -> anyhow::Result<()> {
    let audit = testbed.audit(Options { settle: SETTLE_LIMIT, ..Default::default() }).await?;
    let broken = answers.broken_promises(&testbed.pool).await?;
    let examples = broken.iter().take(EXAMPLES).cloned().collect::<Vec<_>>().join("; ");
    ensure!(broken.is_empty(), "{} promises are broken: {examples}\n{audit}", broken.len());
    ensure!(audit.clean, "the audit found violations:\n{audit}");
    Ok(())
}
