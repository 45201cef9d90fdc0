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

/// A point that several services pass is hit in another one at each pass.
fn plan(points: &[FaultPoint], hits: &[u32]) -> Vec<Case> {
    let cases = points.iter().flat_map(|point| hits.iter().enumerate().map(move |(place, hit)| (*point, place, *hit)));
    cases.map(|(point, place, hit)| Case { point, hit, armed_in: armed_in(point, place) }).collect()
}

fn armed_in(point: FaultPoint, place: usize) -> Vec<Service> {
    match point {
        FaultPoint::GatewayCall | FaultPoint::AfterChargeBeforeRecord => vec![PAYMENT],
        // Whichever service's detector finds the sagas first.
        FaultPoint::BetweenTimeoutAndCompensation => vec![ORDER, INVENTORY, PAYMENT],
        _ => vec![[ORDER, INVENTORY, PAYMENT][place % 3]],
    }
}

/// The stage as the tasks of a case share it.
type Shared = Arc<Stage>;
