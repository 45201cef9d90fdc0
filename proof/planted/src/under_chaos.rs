//! The mistakes that a nemesis provokes, in chaos runs. They are judged by the general verdict: the clients' answers, money and
//! stock, and the audit. There is no provocation of the specific mistake.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chaos::{
    Settings,
    chaos::{Plan, chaos},
    nemesis::{self, Nemesis},
    report::Demands,
};
use reports::shortened;
use serde::Serialize;

use crate::bug::Bug;

const SETTLE: Duration = Duration::from_secs(30);
const LONGEST_PHASE: Duration = Duration::from_secs(4);
/// Orders a second.
const RATE: u32 = 40;
const DEADLINE: &str = "20s";
/// How many failures are shown.
const EXAMPLES: usize = 3;

/// The result of a chaos run with one mistake, or with none.
#[derive(Debug, Serialize)]
pub struct ChaosTrial {
    pub bug: Option<&'static str>,
    pub nemeses: Vec<&'static str>,
    pub failures: Vec<String>,
    pub seconds: f64,
}

impl ChaosTrial {
    /// The mistake was detected, or nothing was found without one.
    pub fn passed(&self) -> bool {
        self.bug.is_some() != self.failures.is_empty()
    }
}

/// Runs chaos on programs with the mistake of `bug`, or none, under the nemeses that provoke all of `bugs`.
pub async fn run(
    bug: Option<&Bug>,
    bugs: &[&'static Bug],
    seed: u64,
    programs: &Path,
    reports: &Path,
) -> anyhow::Result<ChaosTrial> {
    let began = Instant::now();
    let name = bug.map_or("none", |bug| bug.name);
    let logs = reports.join("under-chaos").join(name);
    let nemeses: Vec<&'static Nemesis> =
        nemesis::ALL.iter().filter(|nemesis| bugs.iter().any(|bug| bug.shown_by.contains(&nemesis.name))).collect();
    let planted = [("PLANTED", bug.map_or("", |bug| bug.name))];
    let settings = Settings::new(programs.to_owned(), logs, 2)?;
    let settings = settings.with(&planted).with(bug.map_or(&[], |bug| bug.settings));
    let plan = Plan {
        seed,
        length: bugs.iter().map(|bug| bug.length).max().unwrap_or_default(),
        rate: RATE,
        nemeses: nemeses.clone(),
        longest_phase: LONGEST_PHASE,
        deadline: Some(DEADLINE),
        settle: SETTLE,
        demands: Demands { most_cancelled_percent: 100.0, orders: 0, faults: 0, nemeses: 0, recovery: false },
    };
    let report = chaos(&settings, &plan).await?;
    // Without a fault the run would prove nothing about the mistake.
    ensure!(report.faults > 0 && report.nemeses > 0, "{name}: no nemesis struck");
    Ok(ChaosTrial {
        bug: bug.map(|bug| bug.name),
        nemeses: nemeses.iter().map(|nemesis| nemesis.name).collect(),
        failures: report.failures(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

impl fmt::Display for ChaosTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.bug, self.failures.is_empty()) {
            (Some(_), false) => "caught",
            (Some(_), true) => "MISSED",
            (None, true) => "nothing found",
            (None, false) => "FOUND SOMETHING",
        };
        let bug = self.bug.unwrap_or("(no mistake)");
        write!(f, "{bug:33} {verdict} in {:4.1} s  {}", self.seconds, self.nemeses.join(", "))?;
        let mut failures = shortened(&self.failures, EXAMPLES, self.failures.len());
        failures.try_for_each(|failure| write!(f, "\n    {failure}"))
    }
}
