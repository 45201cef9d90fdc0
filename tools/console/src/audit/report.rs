//! What an audit found, as JSON and as a table for people.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::Violations;

/// The verdicts on all invariants.
#[derive(Debug, Serialize)]
pub struct Report {
    /// No invariant is violated (but for tolerated ones).
    pub clean: bool,
    pub duration_ms: u64,
    pub invariants: Vec<Verdict>,
}

/// One invariant and what was found against it.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub sentence: String,
    pub violations: u64,
    /// Its violations are shown but do not make the report unclean.
    pub tolerated: bool,
    /// The first violations.
    pub examples: Vec<String>,
    /// What could not be compared at this moment, all of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Verdict {
    pub fn new(name: &'static str, sentence: impl Into<String>, found: Violations) -> Self {
        let Violations { count, examples } = found;
        Verdict { name, sentence: sentence.into(), violations: count, tolerated: false, examples, left_out: Vec::new() }
    }

    /// The verdict does not speak of these.
    pub(super) fn without(self, left_out: &[String]) -> Self {
        Verdict { left_out: left_out.to_vec(), ..self }
    }

    pub fn ok(&self) -> bool {
        self.violations == 0 || self.tolerated
    }
}

impl Report {
    pub fn new(invariants: Vec<Verdict>, took: Duration) -> Self {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Report { clean: invariants.iter().all(Verdict::ok), duration_ms, invariants }
    }
}

/// How many examples the table shows.
const SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.invariants.iter().map(|v| v.name.len()).max().unwrap_or(0);
        for verdict in &self.invariants {
            let found = match (verdict.violations, verdict.tolerated) {
                (0, _) => "ok".to_owned(),
                (n, true) => format!("{n} allowed"),
                (n, false) => format!("{n} VIOLATED"),
            };
            write!(f, "{:width$}  {found:>12}  {}", verdict.name, verdict.sentence)?;
            match verdict.left_out.len() {
                0 => writeln!(f)?,
                n => writeln!(f, " ({n} left out)")?,
            }
            for example in verdict.examples.iter().take(SHOWN) {
                writeln!(f, "{:width$}  {:>12}  - {example}", "", "")?;
            }
            let more = verdict.violations.saturating_sub(SHOWN as u64);
            if more > 0 {
                writeln!(f, "{:width$}  {:>12}  - and {more} more", "", "")?;
            }
        }
        let violated = self.invariants.iter().filter(|v| !v.ok()).count();
        let verdict = if self.clean { "clean".to_owned() } else { format!("{violated} violated") };
        writeln!(f, "audit: {} invariants, {verdict} ({} ms)", self.invariants.len(), self.duration_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &'static str, violations: u64) -> Verdict {
        Verdict::new(name, "Nothing is wrong.", (0..violations).map(|n| format!("wrong {n}")).collect())
    }

    #[test]
    fn one_violation_makes_a_report_unclean() {
        let report = Report::new(vec![verdict("good", 0), verdict("bad", 7)], Duration::ZERO);
        assert!(!report.clean);
        let table = report.to_string();
        assert!(table.contains("7 VIOLATED") && table.contains("wrong 4") && table.contains("and 2 more"), "{table}");
        assert!(!table.contains("wrong 5"), "{table}");
    }

    #[test]
    fn tolerated_violations_are_shown_but_clean() {
        let mut dead_letters = verdict("dead_letters", 1);
        dead_letters.tolerated = true;
        let report = Report::new(vec![dead_letters], Duration::ZERO);
        assert!(report.clean);
        assert!(report.to_string().contains("1 allowed"));
    }

    #[test]
    fn what_was_left_out_is_counted_in_the_table_and_named_in_the_json() {
        let report = Report::new(vec![verdict("good", 0).without(&["order 7".to_owned()])], Duration::ZERO);
        assert!(report.to_string().contains("Nothing is wrong. (1 left out)"), "{report}");
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["invariants"][0]["left_out"], serde_json::json!(["order 7"]));
    }
}
