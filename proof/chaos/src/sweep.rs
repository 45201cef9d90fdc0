//! The crash-point sweep: at every fault point, at its 1st, 2nd and 10th pass, a real process aborts under load, is started
//! again, and the suite must settle with a clean audit. A point that no order passes fails the sweep.

mod case;
mod report;

use std::{sync::Arc, time::Instant};

use contracts::{INVENTORY, ORDER, PAYMENT};
use faults::FaultPoint;
use saga::Service;

pub use self::report::{CaseReport, SweepReport};
use crate::{Settings, Stage};

/// Short deadlines, so that a case does not take a minute. A charge with `tok_slow` outlasts the saga's deadline.
const SETTINGS: &[(&str, &str)] = &[
    ("FAULTS_ENABLED", "true"),
    ("SAGA_DEADLINE", "3s"),
    ("COMPENSATION_DEADLINE", "5s"),
    ("TIMEOUT_CHECK_EVERY", "200ms"),
    ("COMPENSATION_CHECK_EVERY", "500ms"),
    ("RELAY_LEASE", "1s"),
    ("RECONCILE_EVERY", "1s"),
    ("REPLENISH_ENABLED", "false"),
    ("GATEWAY_SLOW_ANSWER", "4s"),
];

/// One crash: where, at which pass, and in which services the fault is armed.
#[derive(Debug, Clone)]
pub struct Case {
    pub point: FaultPoint,
    pub hit: u32,
    pub armed_in: Vec<Service>,
}

/// Crashes at each of the points, at each of these passes, one after the other in one suite.
///
/// # Errors
/// When the suite does not start.
pub async fn sweep(settings: &Settings, points: &[FaultPoint], hits: &[u32]) -> anyhow::Result<SweepReport> {
    let began = Instant::now();
    let own = SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment = own.chain(settings.environment.iter().cloned()).collect();
    let stage = Stage::start(&Settings { environment, ..settings.clone() }).await?;
    for (sku, quantity) in [("PLENTY", 1_000_000), ("SCARCE", 1)] {
        stage.sell(sku, 1_000, quantity).await?;
    }
    let mut cases = Vec::new();
    for case in plan(points, hits) {
        let report = case::play(&stage, &case).await;
        println!("{report}");
        cases.push(report);
    }
    stage.save_logs().await?;
    Ok(SweepReport::new(points, cases, began.elapsed()))
}

/// Each point, at each pass, in each service that passes it.
fn plan(points: &[FaultPoint], hits: &[u32]) -> Vec<Case> {
    let mut cases = Vec::new();
    for point in points {
        for hit in hits {
            cases.extend(victims(*point).into_iter().map(|armed_in| Case { point: *point, hit: *hit, armed_in }));
        }
    }
    cases
}

/// In which services the fault is armed, for a case each.
fn victims(point: FaultPoint) -> Vec<Vec<Service>> {
    match point {
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => vec![vec![PAYMENT]],
        // Whichever service's detector finds the sagas first.
        FaultPoint::BetweenTimeoutAndCompensation => vec![vec![ORDER, INVENTORY, PAYMENT]],
        _ => vec![vec![ORDER], vec![INVENTORY], vec![PAYMENT]],
    }
}

/// The stage as the tasks of a case share it.
type Shared = Arc<Stage>;
