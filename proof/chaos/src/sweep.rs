//! The crash-point sweep: at every fault point, at its 1st, 2nd and 10th pass, a real process of each service that passes it
//! aborts under load and is started again. Where a point knows the saga's step, the 1st pass is crashed in each step. After every
//! group of crashes the suite must come to rest, with a clean audit, and with every acknowledged order at its end. The sweep
//! fails when a point, or a step at a point, is never hit.

mod answers;
mod case;
mod load;
mod plan;
mod provoke;
mod report;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::answers::Answers;
pub use self::{
    plan::{Case, Selection},
    report::{CaseReport, GroupReport, SweepReport},
};
use crate::{Settings, Testbed};

/// The deliveries and the leases of a crashed process expire soon, so that a case does not take a minute. Sagas have production's
/// deadline, which outlasts any restart; those that have to time out get an earlier one, while the card processor takes its time
/// over `tok_slow`, and payment waits for it.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("COMPENSATION_DEADLINE", "5s"),
    ("TIMEOUT_CHECK_EVERY", "200ms"),
    ("COMPENSATION_CHECK_EVERY", "500ms"),
    ("CONSUMER_ACK_WAIT", "1s"),
    ("RELAY_LEASE", "500ms"),
    ("COORDINATOR_LEASE", "1s"),
    ("RELAY_POLL", "150ms"),
    ("RECONCILE_EVERY", "1s"),
    ("REPLENISH_ENABLED", "false"),
    ("GATEWAY_SLOW_ANSWER", "8s"),
    ("GATEWAY_TIMEOUT", "10s"),
    ("RESILIENCE", "process_payment.initial=200ms"),
];

/// `GATEWAY_SLOW_ANSWER`.
const SLOW_ANSWER: Duration = Duration::from_secs(8);

/// Runs the selected crashes, one after the other in one suite.
pub async fn sweep(settings: &Settings, selection: &Selection<'_>) -> anyhow::Result<SweepReport> {
    if let Some(unknown) = selection.steps.iter().find(|name| plan::steps().all(|step| step.name != **name)) {
        anyhow::bail!("there is no step {unknown}");
    }
    let began = Instant::now();
    let testbed = Testbed::start(&settings.clone().with(SETTINGS)).await?;
    for (sku, quantity) in [("PLENTY", 1_000_000), ("SCARCE", 1), (load::CHANGING, 1)] {
        testbed.sell(sku, 1_000, quantity).await?;
    }
    let (mut cases, mut groups, mut answers) = (Vec::new(), Vec::new(), Answers::default());
    for group in plan::groups(selection) {
        for case in &group {
            let report = case::crash(&testbed, case, &mut answers).await;
            println!("{report}");
            cases.push(report);
        }
        let settled = case::judge_group(&testbed, group.len(), &answers).await;
        println!("{settled}");
        groups.push(settled);
    }
    testbed.save_logs().await?;
    Ok(SweepReport::new(selection, cases, groups, began.elapsed()))
}

/// The testbed, shared by the tasks of a case.
type Shared = Arc<Testbed>;
