//! The mistakes that a nemesis can show, in chaos, before a judge who knows nothing of them: clients who order and what they
//! were told, money and stock, the audit. Nobody provokes anything in particular.

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
use serde::Serialize;

use crate::bug::Bug;

/// Long enough for two rounds of nemeses.
const LENGTH: Duration = Duration::from_secs(55);
const SETTLE: Duration = Duration::from_secs(30);
const LONGEST_PHASE: Duration = Duration::from_secs(4);
/// Orders a second.
const RATE: u32 = 40;
const DEADLINE: &str = "20s";
/// How many failures are shown.
const EXAMPLES: usize = 3;

/// What a run of chaos found with one mistake, or with none.
#[derive(Debug, Serialize)]
pub struct Storm {
    pub bug: Option<&'static str>,
    pub nemeses: Vec<&'static str>,
    pub failures: Vec<String>,
    pub seconds: f64,
}

impl Storm {
    /// A mistake was noticed, or nothing where there is none.
    pub fn as_it_should_be(&self) -> bool {
        self.bug.is_some() != self.failures.is_empty()
    }
}

/// Runs chaos over programs that make the mistake of `bug`, or none, but meet what all of `bugs` need to show.
pub async fn blow(
    bug: Option<&Bug>,
    bugs: &[&'static Bug],
    seed: u64,
    programs: &Path,
    reports: &Path,
) -> anyhow::Result<Storm> {
    let began = Instant::now();
    let name = bug.map_or("none", |bug| bug.name);
    let logs = reports.join("storm").join(name);
    let nemeses: Vec<&'static Nemesis> =
        nemesis::ALL.iter().filter(|nemesis| bugs.iter().any(|bug| bug.shown_by.contains(&nemesis.name))).collect();
    let planted = [("PLANTED", bug.map_or("", |bug| bug.name))];
    let settings = Settings::new(programs.to_owned(), logs, 2)?;
    let settings = settings.with(&planted).with(bug.map_or(&[], |bug| bug.settings));
    let plan = Plan {
        seed,
        length: LENGTH,
        rate: RATE,
        nemeses: nemeses.clone(),
        longest_phase: LONGEST_PHASE,
        deadline: Some(DEADLINE),
        settle: SETTLE,
        demands: Demands { most_cancelled_percent: 100.0, orders: 0, faults: 0, nemeses: 0, recovery: false },
    };
    let report = chaos(&settings, &plan).await?;
    // That too little happened would be a failure, but none that the mistake has caused.
    ensure!(report.faults > 0 && report.nemeses > 0, "{name}: no nemesis struck");
    Ok(Storm {
        bug: bug.map(|bug| bug.name),
        nemeses: nemeses.iter().map(|nemesis| nemesis.name).collect(),
        failures: report.failures(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.bug, self.failures.is_empty()) {
            (Some(_), false) => "caught",
            (Some(_), true) => "MISSED",
            (None, true) => "nothing found",
            (None, false) => "FOUND SOMETHING",
        };
        let bug = self.bug.unwrap_or("(no mistake)");
        write!(f, "{bug:33} {verdict} in {:4.1} s  {}", self.seconds, self.nemeses.join(", "))?;
        self.failures.iter().take(EXAMPLES).try_for_each(|failure| write!(f, "\n    {failure}"))?;
        if self.failures.len() > EXAMPLES {
            write!(f, "\n    and {} more", self.failures.len() - EXAMPLES)?;
        }
        Ok(())
    }
}
