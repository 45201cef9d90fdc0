//! The crash-point sweep: at every fault point, at its 1st, 2nd and 10th pass, a real process of each service that
//! passes it aborts under load and is started again. Where a point knows the saga's step, its 1st pass is crashed in
//! each step for itself. After every few crashes the suite must settle, with a clean audit, and with every order that
//! a client was told of at its end. A point, or a step at a point, that no crash hits fails the sweep, and so does a
//! whole sweep that takes too long.

mod case;
mod load;
mod plan;
mod provoke;
mod report;
mod told;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use faults::FaultPoint;

pub use self::{
    plan::Case,
    report::{CaseReport, GroupReport, SweepReport},
};
use self::{report::Asked, told::Told};
use crate::{Settings, Stage};

/// Short deadlines, so that a case does not take a minute: what a dead process had in hand comes back soon, and its
/// relay's lease ends soon. A charge with `tok_slow` outlasts the saga's deadline.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("SAGA_DEADLINE", "6s"),
    ("COMPENSATION_DEADLINE", "5s"),
    ("TIMEOUT_CHECK_EVERY", "200ms"),
    ("COMPENSATION_CHECK_EVERY", "500ms"),
    ("CONSUMER_ACK_WAIT", "1s"),
    ("RELAY_LEASE", "500ms"),
    ("RELAY_POLL", "150ms"),
    ("RECONCILE_EVERY", "1s"),
    ("REPLENISH_ENABLED", "false"),
    ("GATEWAY_SLOW_ANSWER", "8s"),
    ("GATEWAY_TIMEOUT", "10s"),
    ("RESILIENCE", "process_payment.initial=200ms"),
];
/// `SAGA_DEADLINE`.
const DEADLINE: Duration = Duration::from_secs(6);

/// Crashes at each of the points, at each of these passes, one after the other in one suite.
pub async fn sweep(settings: &Settings, points: &[FaultPoint], hits: &[u32]) -> anyhow::Result<SweepReport> {
    let began = Instant::now();
    let stage = Stage::start(&settings.clone().with(SETTINGS)).await?;
    for (sku, quantity) in [("PLENTY", 1_000_000), ("SCARCE", 1), (load::CHANGING, 1)] {
        stage.sell(sku, 1_000, quantity).await?;
    }
    let (mut cases, mut groups, mut told) = (Vec::new(), Vec::new(), Told::default());
    for group in plan::groups(points, hits) {
        for case in &group {
            let report = case::play(&stage, case, &mut told).await;
            println!("{report}");
            cases.push(report);
        }
        let settled = case::settle(&stage, group.len(), &told).await;
        println!("{settled}");
        groups.push(settled);
    }
    stage.save_logs().await?;
    Ok(SweepReport::new(&Asked { points, hits }, cases, groups, began.elapsed()))
}

/// The stage as the tasks of a case share it.
type Shared = Arc<Stage>;
