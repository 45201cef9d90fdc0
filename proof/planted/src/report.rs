//! The detections of each mistake, as JSON and as a table.

use std::fmt;

use serde::Serialize;

use crate::{bug::Bug, trial::Trial};

/// The time limit for the detection of a mistake.
const LIMIT_SECONDS: f64 = 90.0;

#[derive(Debug, Serialize)]
pub struct BugReport {
    pub bug: &'static str,
    pub breaks: &'static str,
    pub noticed_by: &'static [&'static str],
    /// All of those detected it, in time.
    pub caught: bool,
    /// Nothing was found in the control run; also true without one.
    pub quiet_without: bool,
    pub mistaken: Trial,
    pub sound: Option<Trial>,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub bugs: Vec<BugReport>,
}

impl BugReport {
    pub fn new(bug: &Bug, mistaken: Trial, sound: Option<Trial>) -> Self {
        let noticed = |oracle: &&str| mistaken.findings.iter().any(|detection| detection.oracle == *oracle);
        let caught = bug.noticed_by.iter().all(noticed) && mistaken.seconds < LIMIT_SECONDS;
        let quiet = |trial: &Trial| trial.findings.is_empty() && trial.failure.is_none();
        let quiet_without = sound.as_ref().is_none_or(quiet);
        BugReport {
            bug: bug.name,
            breaks: bug.breaks,
            noticed_by: bug.noticed_by,
            caught,
            quiet_without,
            mistaken,
            sound,
        }
    }
}

impl Report {
    /// Every mistake was detected, and nothing else.
    pub fn passed(&self) -> bool {
        self.bugs.iter().all(|bug| bug.caught && bug.quiet_without)
    }
}

impl fmt::Display for BugReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.caught { "caught" } else { "MISSED" };
        let oracles: Vec<&str> = self.mistaken.findings.iter().map(|detection| detection.oracle.as_str()).collect();
        write!(
            f,
            "{:33} {:3} {verdict} in {:4.1} s  {}",
            self.bug,
            self.breaks,
            self.mistaken.seconds,
            oracles.join(", ")
        )?;
        if let Some(failure) = &self.mistaken.failure {
            write!(f, "\n    failed: {failure}")?;
        }
        for detection in &self.mistaken.findings {
            write!(f, "\n    {} ({}): {}", detection.oracle, detection.count, detection.example)?;
        }
        match &self.sound {
            None => Ok(()),
            Some(sound) if self.quiet_without => write!(f, "\n    nothing found without it, in {:.1} s", sound.seconds),
            Some(sound) => write!(f, "\n    FOUND WITHOUT IT: {:?} {:?}", sound.findings, sound.failure),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caught = self.bugs.iter().filter(|bug| bug.caught).count();
        let controls: Vec<&BugReport> = self.bugs.iter().filter(|bug| bug.sound.is_some()).collect();
        let quiet = controls.iter().filter(|bug| bug.quiet_without).count();
        writeln!(
            f,
            "planted bugs: {caught} of {} caught; nothing found in {quiet} of {} runs without them",
            self.bugs.len(),
            controls.len()
        )
    }
}
