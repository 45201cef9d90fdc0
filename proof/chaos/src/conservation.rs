//! Checks money and stock every second on a snapshot of the running suite: these invariants hold at any moment, also during an
//! outage.

use std::{collections::HashSet, sync::Arc, time::Duration};

use console::audit::{check, invariants, leave_out_in_flight};
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::workload::Run;

/// The number of the audit's conservation invariants, which come first.
const CONSERVATION: usize = 4;
/// The time limit of a snapshot; after that it counts as skipped.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(5);

/// The result of a run's snapshots.
#[derive(Debug, Default, Serialize)]
pub struct Conservation {
    pub snapshots: u64,
    /// Seconds in which the database could not be read.
    pub skipped: u64,
    /// Each once, as first seen.
    pub violations: Vec<String>,
}

/// Checks a snapshot every second until the run is over.
pub async fn watch(run: Arc<Run>) -> Conservation {
    let mut found = Conservation::default();
    let mut seen = HashSet::new();
    let mut connection: Option<PgConnection> = None;
    let mut every = interval(Duration::from_secs(1));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !run.is_over() {
        every.tick().await;
        match timeout(SNAPSHOT_LIMIT, look(&run.testbed.database_url, &mut connection)).await {
            Ok(Ok(violations)) => {
                found.snapshots += 1;
                let at = run.history.now().as_secs();
                let new: Vec<_> = violations.into_iter().filter(|violation| seen.insert(violation.clone())).collect();
                found.violations.extend(new.into_iter().map(|violation| format!("{at} s: {violation}")));
            }
            _ => {
                connection = None;
                found.skipped += 1;
            }
        }
    }
    found
}

async fn look(database_url: &str, kept: &mut Option<PgConnection>) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => PgConnection::connect(database_url).await?,
    };
    let mut snapshot = connection.begin_with("begin isolation level repeatable read read only").await?;
    leave_out_in_flight(&mut snapshot, &[]).await?;
    let mut violations = Vec::new();
    for invariant in &invariants()[..CONSERVATION] {
        let found = check(&mut snapshot, invariant).await?;
        violations.extend(found.examples.iter().map(|example| format!("{}: {example}", invariant.name)));
    }
    snapshot.commit().await?;
    *kept = Some(connection);
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_invariants_are_those_of_conservation() {
        let names: Vec<&str> = invariants()[..CONSERVATION].iter().map(|invariant| invariant.name).collect();
        assert_eq!(names, ["stock_conserved", "money_conserved", "order_total", "order_terminal"]);
    }
}
